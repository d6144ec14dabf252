import java.net.URI;
import java.util.Map;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;

/**
 * Does a piece of work under the lock "report". Needs redis.clients:jedis.
 *
 * <p>LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
 * milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached, 75
 * another client has the lock.
 */
public final class Lock {
  /**
   * The store of the result compares fences, and refuses the write of a client that has lost the lock meanwhile.
   */
  private static final String WRITE = """
      local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
      if tonumber(ARGV[1]) < seen then return 0 end
      redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
      return 1""";

  private static final class Lost extends Exception {
    private static final long serialVersionUID = 1;

    Lost(String why) {
      super(why);
    }
  }

  public static void main(String[] args) throws Exception {
    System.exit(run(System.getenv()));
  }

  private static int run(Map<String, String> env) throws Exception {
    String url = env.getOrDefault("LOCKPROXY_URL", "redis://127.0.0.1:7379");
    // A lock without PX is renewed while its connection is open: so one connection, no pool.
    var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(5000).build(); // 2 s by default
    Object fence = null;
    try (Connection connection = new Connection(address(url), config);
        Connection data = new Connection(address(env.getOrDefault("REDIS_URL", url)), config)) {
      // WAIT stays well below the socket timeout. GRACE 0: if this process dies, the lock is free at once.
      fence = command(connection, "LOCK", "report", "WAIT", "2000", "GRACE", "0");
      if (fence == null) {
        System.err.println("busy: another client has the lock");
        return 75;
      }
      System.out.println("fence " + fence);
      try {
        try {
          Thread.sleep(Long.parseLong(env.getOrDefault("WORK_MS", "500"))); // the work
          Object written = command(data, "EVAL", WRITE, "1", "report:result", fence.toString(), "java");
          if (written.equals(0L)) {
            throw new Lost("a client with a larger fence has written");
          }
        } finally {
          release(connection);
        }
      } catch (Lost err) {
        System.err.println("lost: " + err.getMessage());
        return 1;
      }
    } catch (JedisException err) {
      System.err.println((fence == null ? "no lock: " : "lost: ") + err.getMessage());
      return fence == null ? 69 : 1;
    }
    System.out.println("done");
    return 0;
  }

  private static HostAndPort address(String text) {
    URI url = URI.create(text);
    return new HostAndPort(url.getHost(), url.getPort());
  }

  private static void release(Connection connection) throws Lost {
    try {
      command(connection, "UNLOCK", "report");
    } catch (JedisDataException err) {
      if (err.getMessage().startsWith("LOSTLEASE") || err.getMessage().startsWith("NOTHELD")) {
        throw new Lost(err.getMessage());
      }
      throw err;
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
