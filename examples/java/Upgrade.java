import java.net.URI;
import java.util.Map;
import java.util.UUID;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

/**
 * Looks at a counter under a shared lock, then takes the lock alone to change it. Needs redis.clients:jedis.
 *
 * <p>No other client changes the counter between the look and the change (an upgrade). LOCKPROXY_URL says where lockproxy
 * is; the work takes WORK_MS milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69
 * lockproxy cannot be reached, 75 the lock was not free in time.
 */
public final class Upgrade {
  /** A change by a client that has lost the lock is refused. */
  private static final String WRITE = """
      if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
      redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'count', ARGV[2])
      return 1""";

  /** The lock was not free in time. */
  private static final class Busy extends RuntimeException {}

  private final Connection connection;
  private final long workMillis;

  private Upgrade(Connection connection, long workMillis) {
    this.connection = connection;
    this.workMillis = workMillis;
  }

  /** An upgrade needs a named owner: without one, each LOCK on a library's connection is an owner of its own. */
  private static final String OWNER = UUID.randomUUID().toString();

  public static void main(String[] args) throws Exception {
    System.exit(run(System.getenv()));
  }

  private static int run(Map<String, String> env) throws Exception {
    URI url = URI.create(env.getOrDefault("LOCKPROXY_URL", "redis://127.0.0.1:7379"));
    var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(5000).build(); // 2 s by default
    boolean connected = false;
    // The lock is renewed while this connection is open: so no pool.
    try (Connection connection = new Connection(new HostAndPort(url.getHost(), url.getPort()), config)) {
      connection.connect();
      connected = true;
      System.out.println("count " + new Upgrade(connection, Long.parseLong(env.getOrDefault("WORK_MS", "500"))).change());
      return 0;
    } catch (Busy err) {
      System.err.println("busy: the lock was not free in time");
      return 75;
    } catch (JedisException | IllegalStateException err) {
      System.err.println((connected ? "lost: " : "no lock: ") + err.getMessage());
      return connected ? 1 : 69;
    }
  }

  private int change() throws InterruptedException {
    while (true) {
      lock("SHARED");
      try {
        Object old = command("HGET", "counter:data", "count");
        int count = old == null ? 1 : Integer.parseInt(old.toString()) + 1;
        Thread.sleep(workMillis); // the look
        String fence = lock(); // waits until the other holders have left
        try {
          if (command("EVAL", WRITE, "1", "counter:data", fence, Integer.toString(count)).equals(0L)) {
            throw new IllegalStateException("a change with a larger fence was made");
          }
        } finally {
          command("UNLOCK", "counter", "OWNER", OWNER);
        }
        return count;
      } catch (JedisDataException err) {
        if (!err.getMessage().startsWith("DEADLOCK")) {
          throw err;
        }
        // Another holder is about to change it, and waits for this one: let it, and look again.
      } finally {
        command("UNLOCK", "counter", "SHARED", "OWNER", OWNER);
      }
    }
  }

  private String lock(String... mode) {
    Object fence = command(("LOCK counter WAIT 2000 GRACE 0 OWNER " + OWNER + " " + String.join(" ", mode)).split(" "));
    if (fence == null) {
      throw new Busy();
    }
    return fence.toString();
  }

  private Object command(String... words) {
    ProtocolCommand command = words[0]::getBytes;
    CommandArguments arguments = new CommandArguments(command);
    for (int i = 1; i < words.length; i++) {
      arguments.add(words[i]);
    }
    Object reply = connection.executeCommand(arguments);
    return reply instanceof byte[] bytes ? SafeEncoder.encode(bytes) : reply;
  }
}
