import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Threads of Redisson and of lockproxy that take turns at the same locks of a cluster, until the program is told to end.
 *
 * <p>LOCKS and FAIR_LOCKS name the locks, PROXIES the proxies. Each hold looks whether another one goes on at the same time, and adds one to a
 * number in REDIS_URL, a server of its own, by reading and writing it. The hash "holds" there counts the holds of each thread. A line "sync" of
 * the input has lockproxy's threads ask for a replica from then on, a line "newcomer" has a new client of Redisson wait for each lock, a line "end" ends all threads. Until "sync" lockproxy answers no errors; later ones
 * are noted.
 */
public final class Contenders {
  private static final int EACH = 2; // threads of each side at each lock
  private static final int WAIT = 2; // s, of one attempt of Redisson
  private static final int PAUSE = 20; // ms, after an error

  /** What is known of one lock. Only its holder changes count and fence. */
  private static final class Guarded {
    final String name;
    final boolean fair;
    final AtomicInteger inside = new AtomicInteger();
    volatile long count;
    volatile long fence;

    Guarded(String name, boolean fair) {
      this.name = name;
      this.fair = fair;
    }
  }

  private final ConcurrentLinkedQueue<String> beside = new ConcurrentLinkedQueue<>();
  private final ConcurrentLinkedQueue<String> backwards = new ConcurrentLinkedQueue<>();
  private final Map<String, Integer> refused = new TreeMap<>(); // errors of lockproxy; guarded by itself
  private final Map<String, Integer> thrown = new TreeMap<>(); // errors of Redisson; guarded by itself
  private int newcomers;
  private String refusedBefore; // before the line "sync"
  private volatile boolean sync;
  private volatile boolean ended;

  public static void main(String[] args) throws Exception {
    new Contenders().run();
  }

  private void run() throws Exception {
    List<Guarded> locks = new ArrayList<>();
    for (String name : System.getenv("LOCKS").split(",")) {
      locks.add(new Guarded(name, false));
    }
    for (String name : System.getenv("FAIR_LOCKS").split(",")) {
      locks.add(new Guarded(name, true));
    }
    String[] proxies = System.getenv("PROXIES").split(",");
    RedissonClient redisson = Scenarios.redisson(Scenarios.BEHIND);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    List<Thread> threads = new ArrayList<>();
    for (Guarded lock : locks) {
      for (int i = 0; i < EACH; i++) {
        String proxy = proxies[i % proxies.length];
        String number = " " + i + " " + lock.name;
        threads.add(start(() -> ofRedisson(redisson, lock, "redisson" + number)));
        threads.add(start(() -> ofProxy(proxy, lock, "proxy" + number)));
      }
    }
    for (String line = input.readLine(); line != null && !line.equals("end"); line = input.readLine()) {
      if (line.equals("newcomer")) {
        newcomer(locks);
        continue;
      }
      synchronized (refused) {
        refusedBefore = refused.toString();
      }
      sync |= line.equals("sync");
    }
    ended = true;
    for (Thread thread : threads) {
      thread.join(Check.LIMIT * 1000);
    }
    new Check()
        .add("nobody-beside-a-holder", () -> Check.equal(beside, List.of()))
        .add("each-hold-counts", () -> counted(locks))
        .add("fences-grow", () -> Check.equal(backwards, List.of()))
        .add("no-refusals", () -> Check.equal(refusedBefore, "{}"))
        .add("errors", () -> Check.note("of lockproxy " + refused + ", of Redisson " + thrown))
        .report();
  }

  private static Thread start(Runnable run) {
    Thread thread = new Thread(run);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Redisson throws whatever becomes of a command while servers change: how its calls end is its own matter. */
  private void ofRedisson(RedissonClient redisson, Guarded lock, String who) {
    RLock mine = lock.fair ? redisson.getFairLock(lock.name) : redisson.getLock(lock.name);
    boolean doubt = false; // an attempt that has thrown may have got the lock
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      while (!ended) {
        try {
          if (!mine.tryLock(WAIT, TimeUnit.SECONDS)) {
            continue;
          }
          hold(lock, 0, who, numbers);
          for (int n = doubt ? mine.getHoldCount() : 1; n > 0; n--) {
            mine.unlock();
          }
          doubt = false;
        } catch (RuntimeException | InterruptedException err) {
          doubt = true;
          count(thrown, err);
          pause();
        }
      }
    }
  }

  /** A client of Redisson that begins now waits for each lock. */
  private void newcomer(List<Guarded> locks) throws Exception {
    RedissonClient redisson = Scenarios.redisson(Scenarios.BEHIND);
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      for (Guarded lock : locks) {
        RLock mine = lock.fair ? redisson.getFairLock(lock.name) : redisson.getLock(lock.name);
        if (mine.tryLock(Check.LIMIT, TimeUnit.SECONDS)) {
          hold(lock, 0, "newcomer " + newcomers + " " + lock.name, numbers);
          mine.unlock();
        }
      }
    } finally {
      newcomers++;
      redisson.shutdown();
    }
  }

  private void ofProxy(String url, Guarded lock, String who) {
    Wire proxy = null;
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      while (!ended) {
        try {
          if (proxy == null) {
            proxy = new Wire(url);
          }
          String verb = lock.fair ? "FAIRLOCK" : "LOCK";
          long fence = sync ? proxy.number(verb, lock.name, "SYNC", "1") : proxy.number(verb, lock.name);
          hold(lock, fence, who, numbers);
          proxy.command("UNLOCK", lock.name);
        } catch (RuntimeException err) {
          count(refused, err);
          if (proxy != null) {
            proxy.close(); // its lock ends with its lease
            proxy = null;
          }
          pause();
        }
      }
    }
  }

  private void hold(Guarded lock, long fence, String who, Wire numbers) {
    if (lock.inside.incrementAndGet() != 1) {
      beside.add(who);
    }
    if (fence != 0 && fence <= lock.fence) {
      backwards.add(who + ": " + fence + " after " + lock.fence);
    }
    lock.fence = Math.max(fence, lock.fence);
    Object before = numbers.command("GET", lock.name);
    long next = before == null ? 1 : Long.parseLong(before.toString()) + 1;
    pause(2);
    numbers.command("SET", lock.name, String.valueOf(next));
    lock.count++;
    lock.inside.decrementAndGet();
    numbers.command("HINCRBY", "holds", who, "1");
  }

  private static void counted(List<Guarded> locks) {
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      long all = 0;
      for (Guarded lock : locks) {
        Check.equal(numbers.command("GET", lock.name), lock.count, lock.name);
        all += lock.count;
      }
      Check.note(all + " holds");
    }
  }

  private static void count(Map<String, Integer> errors, Exception err) {
    synchronized (errors) {
      errors.merge(Check.cut(String.valueOf(err.getMessage())), 1, Integer::sum);
    }
  }

  private static void pause() {
    pause(PAUSE);
  }

  private static void pause(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException err) {
      throw new IllegalStateException(err);
    }
  }
}
