import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Threads of Redisson and of lockproxy that take turns at the same locks, until the program is told to end.
 *
 * <p>LOCKS, FAIR_LOCKS and SHARED_LOCKS name the locks, PROXIES the proxies. A shared lock has readers and writers: of
 * Redisson, and of lockproxy by LOCK and FAIRLOCK with and without SHARED. Each hold looks whether another one goes on
 * at the same time that it excludes. Unless it is a reader's, it adds one to a number in REDIS_URL, a server of its own,
 * by reading and writing it. The hash "holds" there counts the holds of each thread.
 *
 * <p>Lines of the input: "sync" has lockproxy's threads ask for a replica from then on, "newcomer" has a new client of
 * Redisson wait for each lock, "moves" and "faults" say that servers change from then on, "end" ends all threads. Before
 * any of these lines no thread waits for long. Until "faults" or "sync" lockproxy answers no errors. Later both are noted.
 */
public final class Contenders {
  private static final int EACH = 2; // threads of each side at each lock; at a shared lock as many readers and writers
  private static final int WAIT = Integer.parseInt(System.getenv("WAIT")); // s, of one attempt of Redisson
  private static final int PAUSE = 20; // ms, after an error, and the most between two holds of a reader
  private static final int ALONE = 1000; // more than there are readers
  private static final int LONG = 10_000; // ms; a third of the lease of Redisson and of lockproxy, if these are the defaults

  private enum Kind {
    PLAIN, FAIR, SHARED
  }

  /** What is known of one lock. Only a holder that is alone changes count and alone. */
  private static final class Guarded {
    final String name;
    final Kind kind;
    final AtomicInteger inside = new AtomicInteger(); // the number of readers; a holder that is alone counts as ALONE
    final AtomicInteger most = new AtomicInteger(); // readers at a time
    final AtomicLong fence = new AtomicLong(); // the largest
    volatile long alone; // the largest of holders that were alone
    volatile long count;

    Guarded(String name, Kind kind) {
      this.name = name;
      this.kind = kind;
    }
  }

  private final ConcurrentLinkedQueue<String> beside = new ConcurrentLinkedQueue<>();
  private final ConcurrentLinkedQueue<String> backwards = new ConcurrentLinkedQueue<>();
  private final Map<String, Integer> refused = new TreeMap<>(); // errors of lockproxy; guarded by itself
  private final Map<String, Integer> thrown = new TreeMap<>(); // errors of Redisson; guarded by itself
  private final Map<String, Integer> late = new TreeMap<>(); // waits for longer than LONG; guarded by itself
  private int newcomers;
  private String refusedBefore; // before the first of the lines "faults" and "sync"
  private String lateBefore; // before the first of these lines
  private volatile boolean sync;
  private volatile boolean ended;

  public static void main(String[] args) throws Exception {
    new Contenders().run();
  }

  private void run() throws Exception {
    List<Guarded> locks = new ArrayList<>();
    named("LOCKS", Kind.PLAIN, locks);
    named("FAIR_LOCKS", Kind.FAIR, locks);
    named("SHARED_LOCKS", Kind.SHARED, locks);
    String[] proxies = System.getenv("PROXIES").split(",");
    RedissonClient redisson = Scenarios.redisson(Scenarios.BEHIND);
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    List<Thread> threads = new ArrayList<>();
    for (Guarded lock : locks) {
      for (int i = 0; i < (lock.kind == Kind.SHARED ? 2 * EACH : EACH); i++) {
        String proxy = proxies[i % proxies.length];
        boolean reads = i >= EACH;
        String verb = lock.kind == Kind.FAIR || lock.kind == Kind.SHARED && i % 2 == 1 ? "FAIRLOCK" : "LOCK";
        String number = " " + i + " " + lock.name;
        threads.add(start(() -> ofRedisson(redisson, lock, reads, "redisson" + number)));
        threads.add(start(() -> ofProxy(proxy, lock, verb, reads, "proxy" + number)));
      }
    }
    for (String line = input.readLine(); line != null && !line.equals("end"); line = input.readLine()) {
      if (line.equals("newcomer")) {
        newcomer(locks);
        continue;
      }
      if (lateBefore == null) {
        lateBefore = shown(late);
      }
      if (refusedBefore == null && !line.equals("moves")) {
        refusedBefore = shown(refused);
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
        .add("readers-share", () -> shared(locks))
        .add("no-refusals", () -> Check.equal(refusedBefore, "{}"))
        .add("no-long-waits", () -> Check.equal(lateBefore, "{}"))
        .add("errors", () -> Check.note("of lockproxy " + refused + ", of Redisson " + thrown + ", long waits " + late))
        .report();
  }

  private static void named(String variable, Kind kind, List<Guarded> locks) {
    for (String name : System.getenv().getOrDefault(variable, "").split(",")) {
      if (!name.isEmpty()) {
        locks.add(new Guarded(name, kind));
      }
    }
  }

  private static String shown(Map<String, Integer> counts) {
    synchronized (counts) {
      return counts.toString();
    }
  }

  private static RLock of(RedissonClient redisson, Guarded lock, boolean reads) {
    return switch (lock.kind) {
      case PLAIN -> redisson.getLock(lock.name);
      case FAIR -> redisson.getFairLock(lock.name);
      case SHARED -> reads ? redisson.getReadWriteLock(lock.name).readLock() : redisson.getReadWriteLock(lock.name).writeLock();
    };
  }

  private static Thread start(Runnable run) {
    Thread thread = new Thread(run);
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  /** Redisson throws whatever becomes of a command while servers change: how its calls end is its own matter. */
  private void ofRedisson(RedissonClient redisson, Guarded lock, boolean reads, String who) {
    RLock mine = of(redisson, lock, reads);
    boolean doubt = false; // an attempt that has thrown may have got the lock
    long begin = System.nanoTime();
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      while (!ended) {
        try {
          if (!mine.tryLock(WAIT, TimeUnit.SECONDS)) {
            continue;
          }
          waited(begin, who);
          hold(lock, reads, 0, who, numbers);
          for (int n = doubt ? mine.getHoldCount() : 1; n > 0; n--) {
            mine.unlock();
          }
          doubt = false;
          begin = between(reads);
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
        RLock mine = of(redisson, lock, false);
        if (mine.tryLock(Check.LIMIT, TimeUnit.SECONDS)) {
          hold(lock, false, 0, "newcomer " + newcomers + " " + lock.name, numbers);
          mine.unlock();
        }
      }
    } finally {
      newcomers++;
      redisson.shutdown();
    }
  }

  private void ofProxy(String url, Guarded lock, String verb, boolean reads, String who) {
    Wire proxy = null;
    long begin = System.nanoTime();
    try (Wire numbers = new Wire(System.getenv("REDIS_URL"))) {
      while (!ended) {
        try {
          if (proxy == null) {
            proxy = new Wire(url);
          }
          List<String> words = new ArrayList<>(List.of(verb, lock.name));
          if (reads) {
            words.add("SHARED");
          }
          if (sync) {
            words.addAll(List.of("SYNC", "1"));
          }
          long fence = proxy.number(words.toArray(new String[0]));
          waited(begin, who);
          hold(lock, reads, fence, who, numbers);
          proxy.command("UNLOCK", lock.name);
          begin = between(reads);
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

  private void hold(Guarded lock, boolean reads, long fence, String who, Wire numbers) {
    int all = lock.inside.addAndGet(reads ? 1 : ALONE);
    if (reads ? all >= ALONE : all != ALONE) {
      beside.add(who);
    }
    long before = reads ? lock.alone : lock.fence.get(); // readers may get here in another order than they were granted in
    if (fence != 0 && fence <= before) {
      backwards.add(who + ": " + fence + " after " + before);
    }
    lock.fence.accumulateAndGet(fence, Math::max);
    if (reads) {
      lock.most.accumulateAndGet(all, Math::max);
      pause(2);
    } else {
      lock.alone = Math.max(fence, lock.alone);
      Object number = numbers.command("GET", lock.name);
      long next = number == null ? 1 : Long.parseLong(number.toString()) + 1;
      pause(2);
      numbers.command("SET", lock.name, String.valueOf(next));
      lock.count++;
    }
    lock.inside.addAndGet(reads ? -1 : -ALONE);
    numbers.command("HINCRBY", "holds", who, "1");
  }

  private void waited(long begin, String who) {
    if (System.nanoTime() - begin > TimeUnit.MILLISECONDS.toNanos(LONG)) {
      synchronized (late) {
        late.merge(who, 1, Integer::sum);
      }
    }
  }

  /** Readers pause between two holds. Else those of Redisson, which know no queue, would leave the lock to no writer. */
  private static long between(boolean reads) {
    if (reads) {
      pause(ThreadLocalRandom.current().nextInt(PAUSE));
    }
    return System.nanoTime();
  }

  private static void shared(List<Guarded> locks) {
    for (Guarded lock : locks) {
      if (lock.kind == Kind.SHARED) {
        Check.claim(lock.most.get() > 1, lock.name + " never had two readers at a time");
        Check.note(lock.most.get() + " readers at a time");
      }
    }
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
