import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;

/**
 * 400 threads take turns under one lock, on 16 connections. Needs redis.clients:jedis.
 *
 * <p>LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. Exit codes: 0 done, 1 lost,
 * 69 lockproxy cannot be reached.
 */
public final class Pool {
  private static final int TASKS = 400;
  private static final AtomicInteger inside = new AtomicInteger();
  private static final AtomicInteger most = new AtomicInteger();

  public static void main(String[] args) throws Exception {
    String url = System.getenv().getOrDefault("LOCKPROXY_URL", "redis://127.0.0.1:7379");
    ConnectionPool locks = pool(url);
    ConnectionPool data = pool(System.getenv().getOrDefault("REDIS_URL", url));
    try {
      on(data, "DEL", "pool:count");
      on(locks, "PING");
    } catch (JedisException err) {
      System.err.println("no lock: " + err.getMessage());
      System.exit(69);
    }
    ExecutorService threads = Executors.newFixedThreadPool(TASKS);
    List<Future<?>> tasks = new ArrayList<>();
    for (int i = 0; i < TASKS; i++) {
      tasks.add(threads.submit(() -> task(locks, data)));
    }
    try {
      for (Future<?> task : tasks) {
        task.get();
      }
    } catch (Exception err) {
      System.err.println("lost: " + err.getMessage());
      System.exit(1);
    }
    System.out.printf("count %s, at most %d inside%n", count(data), most.get());
    System.exit(0);
  }

  private static Void task(ConnectionPool locks, ConnectionPool data) throws InterruptedException {
    Thread.sleep(ThreadLocalRandom.current().nextInt(1000));
    // The lock has a connection of its own, which returns to the pool at the end.
    try (Connection connection = locks.getResource()) {
      while (command(connection, "LOCK", "pool", "WAIT", "3000") == null) {
        // not in time: ask again
      }
      try {
        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
        // Without the lock, tasks would overwrite each other's counts.
        on(data, "SET", "pool:count", String.valueOf(count(data) + 1));
        inside.decrementAndGet();
      } finally {
        command(connection, "UNLOCK", "pool");
      }
    }
    return null;
  }

  /** Has 16 connections, for which a thread waits as long as it takes. WAIT stays below the socket timeout. */
  private static ConnectionPool pool(String url) {
    URI address = URI.create(url);
    var client = DefaultJedisClientConfig.builder().socketTimeoutMillis(5000).build(); // 2 s by default
    var config = new ConnectionPoolConfig();
    config.setMaxTotal(16);
    config.setMaxIdle(16);
    return new ConnectionPool(new HostAndPort(address.getHost(), address.getPort()), client, config);
  }

  private static int count(ConnectionPool data) {
    Object count = on(data, "GET", "pool:count");
    return count == null ? 0 : Integer.parseInt(new String((byte[]) count));
  }

  private static Object on(ConnectionPool data, String name, String... args) {
    try (Connection connection = data.getResource()) {
      return command(connection, name, args);
    }
  }

  private static Object command(Connection connection, String name, String... args) {
    ProtocolCommand command = name::getBytes;
    CommandArguments arguments = new CommandArguments(command);
    for (String arg : args) {
      arguments.add(arg);
    }
    return connection.executeCommand(arguments);
  }
}
