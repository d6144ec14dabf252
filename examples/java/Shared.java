import java.net.URI;
import java.util.Map;
import java.util.Objects;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;

/**
 * Reads an index, or rebuilds it (argument: rebuild). Needs redis.clients:jedis.
 *
 * <p>Any number read it at the same time (SHARED), and none while it is rebuilt. LOCKPROXY_URL says where lockproxy is;
 * the work takes WORK_MS milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy
 * cannot be reached, 75 the lock was not free in time.
 */
public final class Shared {
  /**
   * A rebuild writes two halves, and no reader may see one old and one new. A rebuild that has lost the lock is refused.
   */
  private static final String WRITE = """
      if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
      redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[1])
      return 1""";

  private final Connection connection;
  private final long workMillis;

  private Shared(Connection connection, long workMillis) {
    this.connection = connection;
    this.workMillis = workMillis;
  }

  public static void main(String[] args) throws Exception {
    System.exit(run(System.getenv(), args.length > 0 && args[0].equals("rebuild")));
  }

  private static int run(Map<String, String> env, boolean rebuilds) throws Exception {
    URI url = URI.create(env.getOrDefault("LOCKPROXY_URL", "redis://127.0.0.1:7379"));
    var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(5000).build(); // 2 s by default
    String shared = rebuilds ? "" : " SHARED";
    Object fence = null;
    // The lock belongs to this connection: so no pool.
    try (Connection connection = new Connection(new HostAndPort(url.getHost(), url.getPort()), config)) {
      var index = new Shared(connection, Long.parseLong(env.getOrDefault("WORK_MS", "500")));
      fence = index.command(("LOCK index WAIT 2000 GRACE 0" + shared).split(" "));
      if (fence == null) {
        System.err.println("busy: the lock was not free in time");
        return 75;
      }
      String told;
      try {
        told = rebuilds ? index.rebuild(fence.toString()) : index.read();
      } finally {
        index.command(("UNLOCK index" + shared).split(" ")); // LOSTLEASE or NOTHELD: the lock was lost
      }
      System.out.println(told);
      return 0;
    } catch (JedisException | IllegalStateException err) {
      System.err.println((fence == null ? "no lock: " : "lost: ") + err.getMessage());
      return fence == null ? 69 : 1;
    }
  }

  private String read() throws InterruptedException {
    Object first = half("first");
    Thread.sleep(workMillis);
    if (!Objects.equals(half("second"), first)) {
      throw new IllegalStateException("the index was rebuilt meanwhile");
    }
    return "read " + first;
  }

  private Object half(String name) {
    return command("HGET", "index:data", name);
  }

  private String rebuild(String fence) throws InterruptedException {
    for (String half : new String[] {"first", "second"}) {
      if (half.equals("second")) {
        Thread.sleep(workMillis);
      }
      if (command("EVAL", WRITE, "1", "index:data", fence, half).equals(0L)) {
        throw new IllegalStateException("a rebuild with a larger fence has written");
      }
    }
    return "rebuilt " + fence;
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
