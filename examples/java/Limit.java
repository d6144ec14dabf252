import java.net.URI;
import java.util.Map;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;

/**
 * One of at most five jobs that run at the same time (LIMIT 5), on all machines together. Needs redis.clients:jedis.
 *
 * <p>LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds. Exit codes: 0 done, 1 the permit was
 * lost and the work does not count, 69 lockproxy cannot be reached, 75 five jobs run.
 */
public final class Limit {
  private Limit() {}

  public static void main(String[] args) throws Exception {
    System.exit(run(System.getenv()));
  }

  private static int run(Map<String, String> env) throws Exception {
    URI url = URI.create(env.getOrDefault("LOCKPROXY_URL", "redis://127.0.0.1:7379"));
    var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(5000).build(); // 2 s by default
    Object fence = null;
    // The permit is renewed while this connection is open: so no pool.
    try (Connection connection = new Connection(new HostAndPort(url.getHost(), url.getPort()), config)) {
      fence = command(connection, "LOCK jobs LIMIT 5 WAIT 2000 GRACE 0");
      if (fence == null) {
        System.err.println("busy: five jobs run");
        return 75;
      }
      System.out.println("fence " + fence);
      try {
        Thread.sleep(Long.parseLong(env.getOrDefault("WORK_MS", "500"))); // the work
      } finally {
        command(connection, "UNLOCK jobs FENCE " + fence); // LOSTLEASE or NOTHELD: it was lost
      }
      System.out.println("done");
      return 0;
    } catch (JedisException err) {
      System.err.println((fence == null ? "no lock: " : "lost: ") + err.getMessage());
      return fence == null ? 69 : 1;
    }
  }

  private static Object command(Connection connection, String line) {
    String[] words = line.split(" ");
    ProtocolCommand command = words[0]::getBytes;
    CommandArguments arguments = new CommandArguments(command);
    for (int i = 1; i < words.length; i++) {
      arguments.add(words[i]);
    }
    return connection.executeCommand(arguments);
  }
}
