import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.BatchOptions;
import org.redisson.api.RBatch;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;

/**
 * Redisson, connected to Redis itself, and lockproxy's commands in front of the same Redis, on the same locks.
 *
 * <p>The proxy runs with a lease of 3 s, and so does Redisson, unless LEASE_MS says otherwise. BEHIND_URL is the proxy's Redis, which has one replica,
 * the process REPLICA_PID. Or it is cluster://host:port,host:port: then both sides use a Redis Cluster.
 */
public final class Scenarios {
  static final String BEHIND = System.getenv("BEHIND_URL");
  static final String PROXY = System.getenv("LOCKPROXY_URL");
  private static final String CLUSTER = "cluster://";
  private static final long LEASE = Long.parseLong(System.getenv().getOrDefault("LEASE_MS", "3000"));
  private static final int ROUNDS = 15; // of each measurement

  private final RedissonClient redisson = redisson(BEHIND);

  static RedissonClient redisson(String url) {
    Config config = new Config();
    config.setLockWatchdogTimeout(LEASE);
    if (url.startsWith(CLUSTER)) {
      ClusterServersConfig cluster = config.useClusterServers().setMasterConnectionMinimumIdleSize(2).setMasterConnectionPoolSize(16);
      for (String node : nodes(url)) {
        cluster.addNodeAddress(node);
      }
    } else {
      config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(2).setConnectionPoolSize(16);
    }
    return Redisson.create(config);
  }

  /** The URLs of some nodes of a cluster. */
  private static List<String> nodes(String url) {
    List<String> all = new ArrayList<>();
    for (String node : url.substring(CLUSTER.length()).split(",")) {
      all.add("redis://" + node);
    }
    return all;
  }

  /** A connection for looking at keys: to Redis itself, or to the server of each key through the proxy. */
  private static Wire behind() {
    return new Wire(BEHIND.startsWith(CLUSTER) ? PROXY : BEHIND);
  }

  public static void main(String[] args) {
    Scenarios s = new Scenarios();
    Check check = new Check()
        .add("redisson-holds", s::redissonHolds)
        .add("proxy-holds", s::proxyHolds)
        .add("reentry", s::reentry)
        .add("expiry-of-redisson", s::expiryOfRedisson)
        .add("expiry-of-proxy", s::expiryOfProxy)
        .add("wake-redisson-lock", () -> s.wakeRedisson(RLock::lock))
        .add("wake-redisson-trylock", () -> s.wakeRedisson(lock -> Check.claim(lock.tryLock(Check.LIMIT, TimeUnit.SECONDS), "not granted")))
        .add("wake-redisson-async", () -> s.wakeRedisson(lock -> lock.lockAsync(Thread.currentThread().getId()).get()))
        .add("wake-proxy", s::wakeProxy)
        .add("wake-readers", () -> s.wakeOther("LOCK", s::readLock))
        .add("wake-writers", () -> s.wakeOther("LOCK", s::writeLock))
        .add("wake-writers-behind-shared", () -> s.wakeOther("LOCK SHARED", s::writeLock))
        .add("wake-locks-behind-shared", () -> s.wakeOther("LOCK SHARED", s.redisson::getLock))
        .add("wake-shared-behind-writer", () -> s.wakeOurs("LOCK SHARED", s::writeLock))
        .add("wake-fair-shared-behind-writer", () -> s.wakeOurs("FAIRLOCK SHARED", s::writeLock))
        .add("wake-proxy-behind-writer", () -> s.wakeOurs("LOCK", s::writeLock))
        .add("wake-proxy-behind-reader", () -> s.wakeOurs("LOCK", s::readLock))
        .add("wake-fair-behind-reader", () -> s.wakeOurs("FAIRLOCK", s::readLock))
        .add("wake-shared-behind-lock", () -> s.wakeOurs("LOCK SHARED", s.redisson::getLock))
        .add("readers-share", s::readersShare)
        .add("readers-keep-leases", s::readersKeepLeases)
        .add("wake-fair-redisson", s::wakeFairRedisson)
        .add("wake-fair-proxy", s::wakeFairProxy)
        .add("forced-by-redisson", s::forcedByRedisson)
        .add("forced-by-proxy", s::forcedByProxy)
        .add("watchdogs", s::watchdogs)
        .add("fair-order", s::fairOrder);
    if (!BEHIND.startsWith(CLUSTER)) {
      check
          .add("fair-killed-head", s::fairKilledHead)
          .add("fair-timeout", s::fairTimeout)
          .add("through-locks", s::throughLocks)
          .add("through-pubsub", s::throughPubsub)
          .add("through-wait", s::throughWait);
    }
    check.report();
  }

  private interface Acquire {
    void from(RLock lock) throws Exception;
  }

  /** A thread for Redisson, which makes the thread the owner. */
  private static final class Party implements AutoCloseable {
    private final ExecutorService thread = Executors.newSingleThreadExecutor(work -> {
      Thread t = new Thread(work);
      t.setDaemon(true);
      return t;
    });

    <T> CompletableFuture<T> start(Callable<T> call) {
      CompletableFuture<T> future = new CompletableFuture<>();
      thread.execute(() -> {
        try {
          future.complete(call.call());
        } catch (Throwable err) {
          future.completeExceptionally(err);
        }
      });
      return future;
    }

    CompletableFuture<Object> does(Check.Claim call) {
      return start(() -> {
        call.check();
        return null;
      });
    }

    @Override
    public void close() {
      thread.shutdownNow();
    }
  }

  private static Wire proxy() {
    return new Wire(PROXY);
  }

  private static String fresh(String name) {
    return name + ":" + UUID.randomUUID();
  }

  private static void unlockedByStranger(RLock lock) {
    try {
      lock.unlock();
    } catch (IllegalMonitorStateException expected) {
      return;
    }
    throw new AssertionError("Redisson released a lock that it does not hold");
  }

  private void redissonHolds() throws Exception {
    String name = fresh("redisson-holds");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy()) {
      lock.lock();
      Check.equal(proxy.command("TRYLOCK", name), null);
      Check.equal(proxy.command("LOCK", name, "WAIT", "50"), null);
      Check.refused("NOTHELD", () -> proxy.command("UNLOCK", name));
      List<?> info = (List<?>) proxy.command("LOCKINFO", name);
      Object owner = info.get(info.indexOf("owner") + 1);
      Check.equal(proxy.command("HGET", name, owner.toString()), 1);
      Check.claim(owner.toString().endsWith(":" + Thread.currentThread().getId()), "owner " + owner);
      lock.unlock();
      Check.equal(proxy.command("LOCKINFO", name), null);
      Check.claim(proxy.number("TRYLOCK", name) > 0, "no fence");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.equal(proxy.command("EXISTS", name), 0);
    }
  }

  private void proxyHolds() throws Exception {
    String name = fresh("proxy-holds");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy()) {
      proxy.command("LOCK", name);
      Check.claim(lock.isLocked(), "Redisson does not see the lock");
      Check.claim(!lock.isHeldByCurrentThread(), "Redisson takes the lock for its own");
      Check.equal(lock.getHoldCount(), 0);
      Check.claim(!lock.tryLock(), "Redisson got the lock as well");
      Check.claim(!lock.tryLock(50, TimeUnit.MILLISECONDS), "Redisson got the lock as well");
      long left = lock.remainTimeToLive();
      Check.claim(left > 0 && left <= LEASE, "time to live " + left);
      unlockedByStranger(lock);
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.claim(!lock.isLocked(), "Redisson still sees the lock");
      Check.claim(lock.tryLock(), "the lock is not free");
      lock.unlock();
    }
  }

  private void reentry() throws Exception {
    String name = fresh("reentry");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy()) {
      lock.lock();
      lock.lock();
      Check.equal(lock.getHoldCount(), 2);
      List<?> info = (List<?>) proxy.command("LOCKINFO", name);
      Check.equal(info.get(info.indexOf("holds") + 1), 2);
      lock.unlock();
      Check.equal(proxy.command("TRYLOCK", name), null);
      lock.unlock();

      long fence = proxy.number("LOCK", name);
      Check.equal(proxy.number("LOCK", name), fence);
      Check.claim(!lock.tryLock(), "Redisson got a lock that is held twice");
      Check.equal(proxy.command("UNLOCK", name), 0);
      Check.claim(!lock.tryLock(), "Redisson got a lock that is held once");
      Check.equal(proxy.command("UNLOCK", name), 1);
      Check.claim(lock.tryLock(), "the lock is not free");
      lock.unlock();
    }
  }

  private void expiryOfRedisson() throws Exception {
    String name = fresh("expiry-of-redisson");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy()) {
      long start = System.nanoTime();
      lock.lock(300, TimeUnit.MILLISECONDS);
      Check.claim(proxy.number("LOCK", name, "WAIT", "5000") > 0, "no fence");
      between(millisSince(start), 290, 5000);
      unlockedByStranger(lock);
      Check.equal(proxy.command("UNLOCK", name), 1);
    }
  }

  private void expiryOfProxy() throws Exception {
    String name = fresh("expiry-of-proxy");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy()) {
      long start = System.nanoTime();
      proxy.command("LOCK", name, "PX", "300");
      Check.claim(lock.tryLock(5, TimeUnit.SECONDS), "not granted");
      between(millisSince(start), 290, 5000);
      Check.refused("LOSTLEASE", () -> proxy.command("UNLOCK", name));
      lock.unlock();
    }
  }

  /** The proxy holds, Redisson waits: from UNLOCK to the grant. */
  private void wakeRedisson(Acquire acquire) throws Exception {
    String name = fresh("wake-redisson");
    RLock lock = redisson.getLock(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Wire redis = behind(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        proxy.command("LOCK", name);
        CompletableFuture<Long> granted = party.start(() -> {
          acquire.from(lock);
          return System.nanoTime();
        });
        subscribed(redis, "redisson_lock__channel:{" + name + "}");
        Check.stillWaits(granted, 20);
        long start = System.nanoTime();
        Check.equal(proxy.command("UNLOCK", name), 1);
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.inTime(party.does(lock::unlock));
      }
    }
    typically(millis);
  }

  /** Redisson holds, the proxy waits. */
  private void wakeProxy() throws Exception {
    String name = fresh("wake-proxy");
    RLock lock = redisson.getLock(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Wire redis = behind(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        lock.lock();
        CompletableFuture<Long> granted = party.start(() -> {
          proxy.number("LOCK", name);
          return System.nanoTime();
        });
        subscribed(redis, "redisson_lock__channel:{" + name + "}");
        Check.stillWaits(granted, 20);
        long start = System.nanoTime();
        lock.unlock();
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.equal(proxy.command("UNLOCK", name), 1);
      }
    }
    typically(millis);
  }

  private RLock readLock(String name) {
    return redisson.getReadWriteLock(name).readLock();
  }

  private RLock writeLock(String name) {
    return redisson.getReadWriteLock(name).writeLock();
  }

  /** A command of the proxy for a lock: the verb, and SHARED. */
  private static String[] words(String command, String name) {
    String[] words = command.split(" ");
    return words.length == 1 ? new String[] {words[0], name} : new String[] {words[0], name, words[1]};
  }

  /** The proxy holds the lock by that command, and a lock of Redisson waits that it excludes. */
  private void wakeOther(String command, Function<String, RLock> make) throws Exception {
    String name = fresh("wake-other");
    RLock lock = make.apply(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        proxy.number(words(command, name));
        CompletableFuture<Long> granted = party.start(() -> {
          lock.lock();
          return System.nanoTime();
        });
        Check.stillWaits(granted, 50);
        long start = System.nanoTime();
        Check.equal(proxy.command("UNLOCK", name), 1);
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.inTime(party.does(lock::unlock));
      }
      Check.equal(proxy.command("EXISTS", name), 0);
    }
    typically(millis);
  }

  /** A lock of Redisson is held, and a command of the proxy waits that it excludes. */
  private void wakeOurs(String command, Function<String, RLock> make) throws Exception {
    String name = fresh("wake-ours");
    RLock lock = make.apply(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        lock.lock();
        CompletableFuture<Long> granted = party.start(() -> {
          proxy.number(words(command, name));
          return System.nanoTime();
        });
        Check.stillWaits(granted, 50);
        long start = System.nanoTime();
        lock.unlock();
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.equal(proxy.command("UNLOCK", name), 1);
      }
      Check.equal(proxy.command("EXISTS", name), 0);
    }
    typically(millis);
  }

  /** Readers of both sides hold the lock together, and come and go in any order. No writer of either side gets in. */
  private void readersShare() throws Exception {
    String name = fresh("readers-share");
    RLock reader = readLock(name);
    RLock writer = writeLock(name);
    try (Wire first = proxy(); Wire second = proxy(); Wire other = proxy(); Party party = new Party()) {
      Check.Claim nobodyAlone = () -> {
        Check.claim(!party.start(() -> writer.tryLock()).get(), "Redisson has a write lock beside readers");
        Check.equal(other.command("TRYLOCK", name), null);
      };
      first.number("LOCK", name, "SHARED");
      reader.lock();
      reader.lock();
      second.number("FAIRLOCK", name, "SHARED", "OWNER", "named");
      nobodyAlone.check();
      Check.equal(first.command("UNLOCK", name), 1);
      reader.unlock();
      nobodyAlone.check();
      reader.unlock();
      nobodyAlone.check();
      reader.lock();
      Check.equal(second.command("UNLOCK", name, "OWNER", "named"), 1);
      nobodyAlone.check();
      reader.unlock();
      Check.equal(other.command("EXISTS", name), 0);
    }
  }

  /** A reader of Redisson's sets the TTL of the lock to its own lease. It goes without a release, and ours keep theirs. */
  private void readersKeepLeases() throws Exception {
    String fixed = fresh("readers-keep-fixed");
    String renewed = fresh("readers-keep-renewed");
    RedissonClient gone = redisson(BEHIND);
    try (Wire holder = proxy(); Wire one = proxy(); Wire two = proxy()) {
      holder.number("LOCK", fixed, "SHARED", "PX", "20000");
      holder.number("LOCK", renewed, "SHARED");
      Check.equal(holder.command("EXTENDLOCK", renewed, "PX", "20000"), 1);
      List<CompletableFuture<Long>> waiting = new ArrayList<>();
      for (String name : List.of(fixed, renewed)) {
        gone.getReadWriteLock(name).readLock().lock();
        Wire waiter = waiting.isEmpty() ? one : two;
        waiting.add(Check.waiting(() -> waiter.number("LOCK", name)));
      }
      Check.stillWaits(waiting.get(0), LEASE); // its readers have been renewed meanwhile
      gone.shutdown(0, 1, TimeUnit.SECONDS);
      Check.stillWaits(waiting.get(0), LEASE * 2);
      for (int i = 0; i < 2; i++) {
        String name = i == 0 ? fixed : renewed;
        Check.stillWaits(waiting.get(i), 1);
        Check.equal(holder.command("UNLOCK", name), 1);
        Check.inTime(waiting.get(i));
        Check.equal((i == 0 ? one : two).command("UNLOCK", name), 1);
      }
    } finally {
      gone.shutdown(0, 1, TimeUnit.SECONDS);
    }
  }

  private void wakeFairRedisson() throws Exception {
    String name = fresh("wake-fair-redisson");
    RLock lock = redisson.getFairLock(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Wire redis = behind(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        proxy.command("FAIRLOCK", name);
        CompletableFuture<Long> granted = party.start(() -> {
          lock.lock();
          return System.nanoTime();
        });
        headSubscribed(redis, name);
        Check.stillWaits(granted, 20);
        long start = System.nanoTime();
        Check.equal(proxy.command("UNLOCK", name), 1);
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.inTime(party.does(lock::unlock));
      }
    }
    typically(millis);
  }

  private void wakeFairProxy() throws Exception {
    String name = fresh("wake-fair-proxy");
    RLock lock = redisson.getFairLock(name);
    List<Double> millis = new ArrayList<>();
    try (Wire proxy = proxy(); Wire redis = behind(); Party party = new Party()) {
      for (int i = 0; i < ROUNDS; i++) {
        lock.lock();
        CompletableFuture<Long> granted = party.start(() -> {
          proxy.number("FAIRLOCK", name);
          return System.nanoTime();
        });
        headSubscribed(redis, name);
        Check.stillWaits(granted, 20);
        long start = System.nanoTime();
        lock.unlock();
        millis.add((Check.inTime(granted) - start) / 1e6);
        Check.equal(proxy.command("UNLOCK", name), 1);
      }
    }
    typically(millis);
  }

  private void forcedByRedisson() throws Exception {
    String name = fresh("forced-by-redisson");
    RLock lock = redisson.getLock(name);
    try (Wire holder = proxy(); Wire next = proxy(); Party party = new Party()) {
      long fence = holder.number("LOCK", name);
      CompletableFuture<Long> granted = party.start(() -> next.number("LOCK", name));
      Check.stillWaits(granted, 100);
      Check.claim(lock.forceUnlock(), "nothing to force");
      Check.claim(Check.inTime(granted) > fence, "the fence did not grow");
      Check.refused("LOSTLEASE", () -> holder.command("UNLOCK", name));
      Check.equal(next.command("UNLOCK", name), 1);
      Check.claim(!lock.forceUnlock(), "there was nothing to force");
    }
  }

  /** Redisson's watchdog must see that its lock is gone, and must not touch the next holder's. */
  private void forcedByProxy() throws Exception {
    String name = fresh("forced-by-proxy");
    RLock lock = redisson.getLock(name);
    try (Wire proxy = proxy(); Party party = new Party()) {
      lock.lock(); // renewed every LEASE / 3
      CompletableFuture<Object> granted = party.does(() -> {
        lock.lock();
        lock.unlock();
      });
      Check.stillWaits(granted, 100);
      Check.equal(proxy.command("FORCEUNLOCK", name), 1);
      Check.inTime(granted);
      Check.equal(proxy.command("FORCEUNLOCK", name), 0);
      Check.claim(!lock.isLocked(), "still locked");
      proxy.command("LOCK", name, "PX", "10000");
      Thread.sleep(LEASE / 2); // past the time of the next renewal
      long left = proxy.number("PTTL", name);
      between(left, LEASE + 1, 10000 - LEASE / 2); // Redisson's renewal would leave its own lease
      unlockedByStranger(lock);
      Check.equal(proxy.command("UNLOCK", name), 1);
    }
  }

  /** Both watchdogs keep a lock for longer than a lease. */
  private void watchdogs() throws Exception {
    String ours = fresh("watchdog-proxy");
    String theirs = fresh("watchdog-redisson");
    RLock lock = redisson.getLock(theirs);
    try (Wire holder = proxy(); Wire other = proxy()) {
      holder.command("LOCK", ours);
      lock.lock();
      long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LEASE * 3 / 2);
      while (System.nanoTime() < end) {
        Check.claim(!redisson.getLock(ours).tryLock(), "Redisson got a lock that the proxy renews");
        Check.equal(other.command("TRYLOCK", theirs), null);
        Thread.sleep(50);
      }
      lock.unlock();
      Check.equal(holder.command("UNLOCK", ours), 1);
    }
  }

  private static void queued(Wire redis, String name, long count) throws Exception {
    Check.until(count + " in the queue", () -> redis.number("LLEN", "redisson_lock_queue:{" + name + "}") == count);
  }

  private static void subscribed(Wire redis, String channel) throws Exception {
    Check.until("a subscription to " + channel, () -> subscribers(redis, channel) == 1);
  }

  /** How many listen to a channel. In a cluster it is a shard channel, and they are connected to its server. */
  private static long subscribers(Wire redis, String channel) {
    if (!BEHIND.startsWith(CLUSTER)) {
      return (Long) ((List<?>) redis.command("PUBSUB", "NUMSUB", channel)).get(1);
    }
    long all = 0;
    for (String node : nodes(BEHIND)) {
      try (Wire one = new Wire(node)) {
        all += (Long) ((List<?>) one.command("PUBSUB", "SHARDNUMSUB", channel)).get(1);
      }
    }
    return all;
  }

  private static void headSubscribed(Wire redis, String name) throws Exception {
    queued(redis, name, 1);
    Object head = redis.command("LINDEX", "redisson_lock_queue:{" + name + "}", "0");
    subscribed(redis, "redisson_lock__channel:{" + name + "}:" + head);
  }

  /** Waiters of both kinds, queued in turn, are granted in that order. */
  private void fairOrder() throws Exception {
    String name = fresh("fair-order");
    RLock lock = redisson.getFairLock(name);
    List<String> order = Collections.synchronizedList(new ArrayList<>());
    List<Party> parties = new ArrayList<>();
    List<CompletableFuture<?>> ends = new ArrayList<>();
    List<String> want = new ArrayList<>();
    try (Wire holder = proxy(); Wire redis = behind()) {
      holder.command("FAIRLOCK", name);
      for (int i = 0; i < 8; i++) {
        Party party = new Party();
        parties.add(party);
        boolean ours = i % 3 == 1;
        String who = (ours ? "proxy " : "redisson ") + i;
        want.add(who);
        ends.add(party.does(() -> {
          if (ours) {
            try (Wire proxy = proxy()) {
              proxy.number("FAIRLOCK", name);
              order.add(who);
              Check.equal(proxy.command("UNLOCK", name), 1);
            }
          } else {
            lock.lock();
            order.add(who);
            lock.unlock();
          }
        }));
        queued(redis, name, i + 1);
      }
      long start = System.nanoTime();
      Check.equal(holder.command("UNLOCK", name), 1);
      for (CompletableFuture<?> end : ends) {
        Check.inTime(end);
      }
      Check.note(millisSince(start) + " ms for " + want.size() + " hand-overs");
      Check.equal(order, want);
      queued(redis, name, 0);
    }
    parties.forEach(Party::close);
  }

  /** A Redisson process at the head of the queue is killed: those behind it wait for seconds, not for minutes. */
  private void fairKilledHead() throws Exception {
    String name = fresh("fair-killed-head");
    String java = ProcessHandle.current().info().command().orElse("java");
    Process head = new ProcessBuilder(java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-cp", System.getProperty("java.class.path"), "Waiter", BEHIND, name, "fair")
        .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    try (Wire holder = proxy(); Wire ours = proxy(); Wire redis = behind(); Party one = new Party(); Party two = new Party()) {
      // The child takes the lock only if it comes first, so it is held before the child is up.
      holder.command("FAIRLOCK", name);
      Check.until("the child in the queue", () -> {
        Check.claim(head.isAlive(), "the child has ended");
        return redis.number("LLEN", "redisson_lock_queue:{" + name + "}") == 1;
      });
      headSubscribed(redis, name);
      CompletableFuture<Long> granted = one.start(() -> ours.number("FAIRLOCK", name));
      queued(redis, name, 2);
      RLock lock = redisson.getFairLock(name);
      CompletableFuture<Object> last = two.does(() -> {
        lock.lock();
        lock.unlock();
      });
      queued(redis, name, 3);
      head.destroyForcibly().waitFor();
      long start = System.nanoTime();
      Check.equal(holder.command("UNLOCK", name), 1);
      granted.get(20, TimeUnit.SECONDS);
      Check.note("the next waiter has the lock after " + millisSince(start) + " ms");
      between(millisSince(start), 0, 12_000);
      Check.equal(ours.command("UNLOCK", name), 1);
      Check.inTime(last);
    } finally {
      head.destroyForcibly();
    }
  }

  /** A waiter of either kind that gives up leaves nothing behind. */
  private void fairTimeout() throws Exception {
    String name = fresh("fair-timeout");
    RLock lock = redisson.getFairLock(name);
    try (Wire holder = proxy(); Wire ours = proxy(); Wire last = proxy(); Wire redis = behind(); Party one = new Party(); Party two = new Party()) {
      holder.command("FAIRLOCK", name);
      CompletableFuture<Boolean> first = one.start(() -> lock.tryLock(3000, TimeUnit.MILLISECONDS));
      queued(redis, name, 1);
      CompletableFuture<Object> second = two.start(() -> ours.command("FAIRLOCK", name, "WAIT", "3500"));
      queued(redis, name, 2);
      Check.equal(Check.inTime(first), false);
      Check.equal(Check.inTime(second), null);
      queued(redis, name, 0);
      Check.equal(holder.command("UNLOCK", name), 1);
      Check.claim(last.number("FAIRLOCK", name, "WAIT", "1000") > 0, "no fence");
      Check.equal(last.command("UNLOCK", name), 1);
    }
  }

  /** A Redisson client that is connected through the proxy, and one that is not. */
  private void throughLocks() throws Exception {
    String name = fresh("through");
    RedissonClient through = redisson(PROXY);
    try (Wire proxy = proxy(); Party one = new Party(); Party two = new Party()) {
      for (boolean fair : new boolean[] {false, true}) {
        RLock ours = fair ? through.getFairLock(name) : through.getLock(name);
        RLock theirs = fair ? redisson.getFairLock(name) : redisson.getLock(name);
        Check.inTime(one.does(ours::lock));
        Check.equal(proxy.command("TRYLOCK", name), null);
        CompletableFuture<Object> direct = two.does(theirs::lock);
        Check.stillWaits(direct, LEASE * 4 / 3); // so its watchdog works through the proxy too
        Check.inTime(one.does(ours::unlock));
        Check.inTime(direct);
        CompletableFuture<Object> waits = one.does(ours::lock);
        Check.stillWaits(waits, 100);
        Check.inTime(two.does(theirs::unlock));
        Check.inTime(waits);
        Check.inTime(one.does(ours::unlock));
      }
      RCountDownLatch latch = through.getCountDownLatch(name + ":latch");
      Check.claim(latch.trySetCount(1), "a latch is there");
      CompletableFuture<Boolean> counted = one.start(() -> latch.await(Check.LIMIT, TimeUnit.SECONDS));
      Check.stillWaits(counted, 100);
      redisson.getCountDownLatch(name + ":latch").countDown();
      Check.equal(Check.inTime(counted), true);
    } finally {
      through.shutdown(0, 1, TimeUnit.SECONDS);
    }
  }

  private void throughPubsub() throws Exception {
    RedissonClient through = redisson(PROXY);
    try {
      String name = fresh("topic");
      List<String> got = Collections.synchronizedList(new ArrayList<>());
      CountDownLatch arrived = new CountDownLatch(200);
      RTopic topic = through.getTopic(name, StringCodec.INSTANCE);
      topic.addListener(String.class, (channel, message) -> {
        got.add(message);
        arrived.countDown();
      });
      through.getPatternTopic(name.substring(0, 20) + "*", StringCodec.INSTANCE).addListener(String.class, (pattern, channel, message) -> arrived.countDown());
      List<String> want = new ArrayList<>();
      for (int i = 0; i < 100; i++) {
        want.add("message " + i);
        RTopic from = i % 2 == 0 ? topic : redisson.getTopic(name, StringCodec.INSTANCE);
        Check.equal(from.publish("message " + i), 2);
      }
      Check.claim(arrived.await(Check.LIMIT, TimeUnit.SECONDS), arrived.getCount() + " messages are missing");
      // Redisson runs listeners on several threads, so the order of arrival is not that of the calls.
      Collections.sort(got);
      Collections.sort(want);
      Check.equal(got, want);
      topic.removeAllListeners();
      Check.until("the end of the subscription", () -> topic.publish("x") == 1);
    } finally {
      through.shutdown(0, 1, TimeUnit.SECONDS);
    }
  }

  /** A batch that waits for replicas: WAIT must count those that have the batch's own writes. */
  private void throughWait() throws Exception {
    RedissonClient through = redisson(PROXY);
    try {
      Check.equal(syncedReplicas(through, 5000), 1);
      Thread.sleep(1200); // a replica reports once a second; so it has by now reported everything before its stop
      signalReplica("-STOP");
      try {
        Check.equal(syncedReplicas(through, 300), 0, "with the replica stopped:");
      } finally {
        signalReplica("-CONT");
      }
      for (int i = 0; i < 10; i++) {
        Check.equal(syncedReplicas(through, 5000), 1);
      }
      Check.equal(redisson.getAtomicLong("batch:count").get(), 12);
    } finally {
      through.shutdown(0, 1, TimeUnit.SECONDS);
    }
  }

  private static int syncedReplicas(RedissonClient client, long millis) {
    RBatch batch = client.createBatch(BatchOptions.defaults().sync(1, Duration.ofMillis(millis)));
    batch.getBucket(fresh("batch"), StringCodec.INSTANCE).setAsync("value");
    batch.getAtomicLong("batch:count").incrementAndGetAsync();
    return batch.execute().getSyncedSlaves();
  }

  private static void signalReplica(String signal) throws Exception {
    Check.equal(new ProcessBuilder("kill", signal, System.getenv("REPLICA_PID")).inheritIO().start().waitFor(), 0);
  }

  private static long millisSince(long start) {
    return (System.nanoTime() - start) / 1_000_000;
  }

  private static void between(long millis, long low, long high) {
    Check.claim(millis >= low && millis <= high, millis + " ms, want " + low + " to " + high);
  }

  /** The median has to be below 50 ms, with room for a machine that does other things as well. */
  private static void typically(List<Double> millis) {
    Collections.sort(millis);
    double median = millis.get(millis.size() / 2);
    Check.note(String.format(Locale.ROOT, "median %.1f ms, largest %.1f ms", median, millis.get(millis.size() - 1)));
    Check.claim(median < 50, "median " + median + " ms");
  }
}
