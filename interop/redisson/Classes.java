import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/**
 * Each class of Redisson that locks or counts, with the name of a lock that is held through the proxy, alone or shared, and the other way round:
 * nobody hangs, Redis answers, the holder keeps what it has, and of two locks one waits, unless both only read.
 *
 * <p>The proxy runs with a lease of 3 s, and so does Redisson.
 */
public final class Classes {
  private static final long LEASE = 3000; // ms
  private static final List<String> SHARED = List.of("SHARED");

  private final RedissonClient redisson = Scenarios.redisson(Scenarios.BEHIND);

  public static void main(String[] args) {
    Classes c = new Classes();
    Map<String, Function<String, RLock>> locks = new LinkedHashMap<>();
    locks.put("lock", c.redisson::getLock);
    locks.put("fair", c.redisson::getFairLock);
    locks.put("spin", c.redisson::getSpinLock);
    locks.put("fenced", c.redisson::getFencedLock);
    locks.put("read", name -> c.redisson.getReadWriteLock(name).readLock());
    locks.put("write", name -> c.redisson.getReadWriteLock(name).writeLock());
    locks.put("multi", name -> c.redisson.getMultiLock(c.redisson.getLock(name), c.redisson.getLock(name + ":second")));
    Check check = new Check();
    locks.forEach((name, make) -> check
        .add("behind-proxy-" + name, () -> c.lockBehindProxy(name, make, List.of()))
        .add("behind-shared-" + name, () -> c.lockBehindProxy(name, make, SHARED))
        .add("behind-limit-" + name, () -> c.lockBehindLimit(name, make))
        .add("behind-redisson-" + name, () -> c.proxyBehindLock(name, make)));
    check
        .add("behind-proxy-semaphore", () -> c.semaphoreBehindProxy(List.of()))
        .add("behind-shared-semaphore", () -> c.semaphoreBehindProxy(SHARED))
        .add("behind-redisson-semaphore", c::proxyBehindSemaphore)
        .add("behind-proxy-permits", () -> c.permitsBehindProxy(List.of()))
        .add("behind-shared-permits", () -> c.permitsBehindProxy(SHARED))
        .add("behind-limit-permits", c::permitsBehindLimit)
        .add("behind-redisson-permits", c::proxyBehindPermits)
        .add("behind-proxy-latch", () -> c.latchBehindProxy(List.of()))
        .add("behind-shared-latch", () -> c.latchBehindProxy(SHARED))
        .add("behind-redisson-latch", c::proxyBehindLatch)
        .report(4); // each has a lock of its own, and they wait for leases
  }

  private static String fresh(String name) {
    return name + ":" + UUID.randomUUID();
  }

  /** What a lock's hash says of its holders, without their notes and the numbers of their last requests. */
  private static Map<String, String> hash(Wire redis, String name) {
    List<?> all = (List<?>) redis.command("HGETALL", name);
    Map<String, String> fields = new TreeMap<>();
    for (int i = 0; i < all.size(); i += 2) {
      String field = (String) all.get(i);
      String value = (String) all.get(i + 1);
      fields.put(field, value.startsWith("#") ? value.split(" ")[0] : value);
    }
    fields.remove("{request}");
    fields.remove("{note}"); // the first renewal writes it
    return fields;
  }

  private static <T> T inTime(Callable<T> call) throws Exception {
    return Check.inTime(Check.waiting(call));
  }

  private static void notHeld(Callable<?> unlock) throws Exception {
    try {
      inTime(unlock);
    } catch (Exception err) {
      Check.claim(err.getCause() instanceof IllegalMonitorStateException, "unlock: " + err);
      return;
    }
    throw new AssertionError("Redisson released a lock that it does not hold");
  }

  private static Callable<Void> unlock(RLock lock) {
    return () -> {
      lock.unlock();
      return null;
    };
  }

  private void lockBehindProxy(String kind, Function<String, RLock> make, List<String> option) throws Exception {
    String name = fresh("behind-proxy-" + kind);
    String[] acquire = words(List.of("LOCK", name), option);
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      RLock lock = make.apply(name);
      long fence = proxy.number(acquire);
      Map<String, String> before = hash(redis, name);
      CompletableFuture<?> waits;
      if (option.equals(SHARED) && kind.equals("read")) {
        waits = beside(lock);
      } else {
        Check.claim(!inTime(() -> lock.tryLock()), "Redisson got the lock as well");
        Check.claim(!inTime(() -> lock.tryLock(300, 1000, TimeUnit.MILLISECONDS)), "Redisson got the lock as well");
        notHeld(unlock(lock));
        if (kind.equals("read") || kind.equals("write")) {
          Check.claim(!inTime(lock::forceUnlock), "Redisson ended a lock of another class");
        }
        waits = Check.waiting(() -> heldForAWhile(lock));
        Check.stillWaits(waits, LEASE * 4 / 3);
      }
      Check.equal(redis.command("PING"), "PONG");
      Check.equal(hash(redis, name), before);
      Check.equal(proxy.number(acquire), fence);
      Check.equal(proxy.command("UNLOCK", name), 0);
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.inTime(waits);
      Check.equal(redis.command("EXISTS", name), 0);
    }
  }

  /** A reader of Redisson's comes and goes beside a shared holder, once for itself and once with a hold of its own inside. */
  private static CompletableFuture<?> beside(RLock reader) throws Exception {
    notHeld(unlock(reader));
    CompletableFuture<?> done = Check.waiting(() -> {
      Check.claim(reader.tryLock(), "a reader does not share the lock");
      Check.claim(reader.tryLock(300, 60_000, TimeUnit.MILLISECONDS), "a reader does not share the lock with itself");
      reader.unlock();
      Thread.sleep(LEASE * 4 / 3); // it is renewed meanwhile, and so is the other holder
      reader.unlock();
      return null;
    });
    done.get(Check.LIMIT, TimeUnit.SECONDS);
    return done;
  }

  private static Void heldForAWhile(RLock lock) throws InterruptedException {
    lock.lock();
    try {
      Thread.sleep(LEASE / 2); // it is renewed meanwhile
    } finally {
      lock.unlock();
    }
    return null;
  }

  private void proxyBehindLock(String kind, Function<String, RLock> make) throws Exception {
    String name = fresh("behind-redisson-" + kind);
    RLock lock = make.apply(name);
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      lock.lock();
      Map<String, String> before = hash(redis, name);
      List<String> holders = new ArrayList<>(before.keySet());
      holders.remove("mode");
      for (List<String> owner : List.of(List.<String>of(), List.of("OWNER", "other"))) {
        for (List<String> option : List.of(List.<String>of(), SHARED)) {
          List<String> words = new ArrayList<>(owner);
          words.addAll(option);
          for (List<String> command : List.of(
              List.of("TRYLOCK", name), List.of("LOCK", name, "WAIT", "100"), List.of("FAIRLOCK", name, "WAIT", "100"))) {
            if (kind.equals("read") && option.equals(SHARED)) {
              Check.claim(proxy.number(words(command, words)) > 0, "no fence");
              Check.equal(proxy.command(words(List.of("UNLOCK", name), words)), 1);
            } else {
              Check.equal(proxy.command(words(command, words)), null);
            }
          }
        }
        Check.refused("WRONGTYPE", () -> proxy.command(words(List.of("LOCK", name, "LIMIT", "2"), owner)));
        Check.refused("NOTHELD", () -> proxy.command(words(List.of("UNLOCK", name), owner)));
        Check.refused("NOTHELD", () -> proxy.command(words(List.of("EXTENDLOCK", name, "PX", "100"), owner)));
      }
      List<?> info = (List<?>) proxy.command("LOCKINFO", name);
      Check.claim(holders.contains(info.get(info.indexOf("owner") + 1)), "LOCKINFO " + info);
      Thread.sleep(LEASE / 2); // Redisson renews it
      Check.equal(hash(redis, name), before);
      CompletableFuture<Long> granted = Check.waiting(() -> proxy.number("LOCK", name));
      Check.stillWaits(granted, 100);
      lock.unlock();
      Check.claim(Check.inTime(granted) > 0, "no fence");
      Check.claim(!inTime(() -> lock.tryLock()), "Redisson got the lock as well");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.equal(redis.command("EXISTS", name), 0);
    }
  }

  private static String[] words(List<String> command, List<String> options) {
    List<String> all = new ArrayList<>(command);
    all.addAll(options);
    return all.toArray(new String[0]);
  }

  /** The calls are refused by Redis, or answered no, and change nothing in a lock. */
  private void changeNothing(String name, List<String> option, List<Callable<?>> calls) throws Exception {
    String[] acquire = words(List.of("LOCK", name), option);
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      long fence = proxy.number(acquire);
      Map<String, String> before = hash(redis, name);
      for (Callable<?> call : calls) {
        try {
          Object got = inTime(call);
          Check.claim(Boolean.FALSE.equals(got), "got " + Check.show(got));
        } catch (Exception err) {
          Check.claim(err.getCause() instanceof RedisException && String.valueOf(err.getCause().getMessage()).contains("WRONGTYPE"), err.toString());
        }
      }
      Check.equal(hash(redis, name), before);
      Check.equal(proxy.number(acquire), fence);
      Check.equal(proxy.command("UNLOCK", name), 0);
      Check.equal(proxy.command("UNLOCK", name), 1);
    }
  }

  /**
   * Acquires of a lock are refused with Redis's error. The number may be a semaphore of which no permit is out, so there is nothing to release, and LIMIT
   * takes from it and gives back.
   */
  private static void isNoLock(String name) throws Exception {
    inTime(() -> does(() -> refusesLocks(name)));
  }

  private static void refusesLocks(String name) throws Exception {
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      Object count = redis.command("GET", name);
      for (List<String> command : List.of(
          List.of("TRYLOCK", name), List.of("LOCK", name, "WAIT", "100"), List.of("FAIRLOCK", name, "WAIT", "100"), List.of("LOCK", name, "OWNER", "other"),
          List.of("TRYLOCK", name, "SHARED"), List.of("LOCK", name, "WAIT", "100", "SHARED"), List.of("FAIRLOCK", name, "WAIT", "100", "SHARED"))) {
        Check.refused("WRONGTYPE", () -> proxy.command(words(command, List.of())));
      }
      Check.refused("NOTHELD", () -> proxy.command("UNLOCK", name));
      Check.refused("NOTHELD", () -> proxy.command("EXTENDLOCK", name, "PX", "100"));
      Check.equal(proxy.command("FORCEUNLOCK", name), 0);
      Check.equal(proxy.command("LOCKINFO", name), null);
      Check.claim(proxy.number("TRYLOCK", name, "LIMIT", "9") > 0, "no fence");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.refused("NOTHELD", () -> proxy.command("UNLOCK", name));
      Check.equal(redis.command("GET", name), count);
      Check.equal(redis.command("TTL", name), -1);
    }
  }

  private void semaphoreBehindProxy(List<String> option) throws Exception {
    String name = fresh("behind-proxy-semaphore");
    RSemaphore s = redisson.getSemaphore(name);
    changeNothing(name, option, List.of(
        () -> s.trySetPermits(2), () -> s.tryAcquire(), () -> s.tryAcquire(1, 300, TimeUnit.MILLISECONDS), s::drainPermits, s::availablePermits,
        () -> does(s::release), () -> does(() -> s.addPermits(1)), () -> does(s::acquire)));
  }

  private void proxyBehindSemaphore() throws Exception {
    String name = fresh("behind-redisson-semaphore");
    RSemaphore s = redisson.getSemaphore(name);
    Check.claim(s.trySetPermits(2) && s.tryAcquire(), "no permit");
    isNoLock(name);
    Check.equal(s.availablePermits(), 1);
    s.release();
    Check.equal(s.availablePermits(), 2);
  }

  private void permitsBehindProxy(List<String> option) throws Exception {
    String name = fresh("behind-proxy-permits");
    RPermitExpirableSemaphore s = redisson.getPermitExpirableSemaphore(name);
    String none = "00".repeat(16);
    changeNothing(name, option, List.of(
        () -> s.trySetPermits(2), s::tryAcquire, () -> s.tryAcquire(300, 1000, TimeUnit.MILLISECONDS), () -> s.tryRelease(none), s::availablePermits,
        () -> does(() -> s.addPermits(1)), s::acquire));
  }

  private void proxyBehindPermits() throws Exception {
    String name = fresh("behind-redisson-permits");
    RPermitExpirableSemaphore s = redisson.getPermitExpirableSemaphore(name);
    Check.claim(s.trySetPermits(2), "no semaphore");
    String permit = s.acquire();
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire other = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      for (List<String> option : List.of(List.<String>of(), SHARED)) {
        Check.refused("WRONGTYPE", () -> proxy.command(words(List.of("TRYLOCK", name), option)));
        Check.refused("WRONGTYPE", () -> proxy.command(words(List.of("FAIRLOCK", name), option)));
      }
      Check.refused("NOTHELD", () -> proxy.command("UNLOCK", name));
      Check.refused("NOTHELD", () -> proxy.command("EXTENDLOCK", name, "PX", "100"));
      Check.claim(proxy.number("LOCK", name, "LIMIT", "5") > 0, "no fence");
      Check.equal(s.availablePermits(), 0);
      Check.equal(proxy.command("TRYLOCK", name, "LIMIT", "5"), null);
      Check.claim(inTime(() -> s.tryAcquire()) == null, "Redisson got a third permit");
      CompletableFuture<Long> granted = Check.waiting(() -> other.number("LOCK", name, "LIMIT", "5"));
      Check.stillWaits(granted, LEASE * 4 / 3); // our permit is renewed meanwhile
      Check.claim(inTime(() -> s.tryRelease(permit)), "the permit is gone");
      Check.claim(Check.inTime(granted) > 0, "no fence");
      CompletableFuture<String> theirs = Check.waiting(() -> s.acquire());
      Check.stillWaits(theirs, 300);
      Check.equal(proxy.command("UNLOCK", name), 1);
      String last = Check.inTime(theirs);
      Check.equal(other.command("UNLOCK", name), 1);
      Check.claim(inTime(() -> s.tryRelease(last)), "the permit is gone");
      Check.equal(s.availablePermits(), 2);
      Check.equal(redis.command("TTL", name), -1);
    }
    isNoLock(name);
    Check.equal(s.availablePermits(), 2);
  }

  /** The proxy has made the permits. */
  private void permitsBehindLimit() throws Exception {
    String name = fresh("behind-limit-permits");
    RPermitExpirableSemaphore s = redisson.getPermitExpirableSemaphore(name);
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      proxy.number("LOCK", name, "LIMIT", "2");
      Check.claim(!inTime(() -> s.trySetPermits(7)), "Redisson has made permits");
      String permit = inTime(() -> s.tryAcquire());
      Check.claim(permit != null, "no permit");
      Check.claim(inTime(() -> s.tryAcquire()) == null, "Redisson got a third permit");
      Check.equal(proxy.command("TRYLOCK", name, "LIMIT", "2"), null);
      CompletableFuture<Long> granted = Check.waiting(() -> proxy.number("LOCK", name, "LIMIT", "2"));
      Check.stillWaits(granted, LEASE * 4 / 3);
      Check.claim(inTime(() -> s.tryRelease(permit)), "the permit is gone");
      Check.claim(Check.inTime(granted) > 0, "no fence");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.equal(redis.command("EXISTS", name), 0);
    }
  }

  /** Redis refuses Redisson's locks while permits are out, and nothing changes. */
  private void lockBehindLimit(String kind, Function<String, RLock> make) throws Exception {
    String name = fresh("behind-limit-" + kind);
    try (Wire proxy = new Wire(Scenarios.PROXY); Wire redis = new Wire(Scenarios.BEHIND)) {
      proxy.number("LOCK", name, "LIMIT", "2");
      RLock lock = make.apply(name);
      for (Callable<?> call : List.<Callable<?>>of(() -> lock.tryLock(), unlock(lock))) {
        try {
          Object got = inTime(call);
          Check.claim(Boolean.FALSE.equals(got), "got " + Check.show(got));
        } catch (Exception err) {
          Check.claim(!(err instanceof java.util.concurrent.TimeoutException), err.toString());
        }
      }
      Check.equal(redis.command("GET", name), "1");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.equal(redis.command("EXISTS", name), 0);
    }
  }

  private void latchBehindProxy(List<String> option) throws Exception {
    String name = fresh("behind-proxy-latch");
    RCountDownLatch latch = redisson.getCountDownLatch(name);
    changeNothing(name, option, List.of(
        () -> latch.trySetCount(2), latch::getCount, () -> latch.await(300, TimeUnit.MILLISECONDS), () -> does(latch::countDown)));
  }

  private void proxyBehindLatch() throws Exception {
    String name = fresh("behind-redisson-latch");
    RCountDownLatch latch = redisson.getCountDownLatch(name);
    Check.claim(latch.trySetCount(2), "no latch");
    isNoLock(name);
    latch.countDown();
    Check.equal(latch.getCount(), 1);
    latch.countDown();
    Check.claim(latch.await(300, TimeUnit.MILLISECONDS), "the latch is not open");
  }

  private static Object does(Check.Claim call) throws Exception {
    call.check();
    return "done";
  }
}
