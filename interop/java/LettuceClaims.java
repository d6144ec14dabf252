import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Lettuce against lockproxy, with the library's defaults. */
public final class LettuceClaims {
  private static final RedisClient DIRECT = RedisClient.create(Claims.DIRECT);
  private static final RedisClient PROXY = RedisClient.create(Claims.PROXY);

  public static void main(String[] args) {
    new Claims(Single::new, RedisCommandExecutionException.class).report(LettuceClaims::own);
  }

  private static void own(Check check) {
    check.add("connect", LettuceClaims::connect)
        .add("pipeline", LettuceClaims::pipeline)
        .add("transaction", LettuceClaims::transaction)
        .add("watch", LettuceClaims::watch)
        .add("pubsub", LettuceClaims::pubsub)
        .add("blocking-pop", LettuceClaims::blockingPop)
        .add("script", LettuceClaims::script);
  }

  private static final class Single implements Claims.Session {
    private final StatefulRedisConnection<String, String> connection;

    Single(String url) {
      connection = (url.equals(Claims.DIRECT) ? DIRECT : PROXY).connect();
    }

    /** An integer or null for what the claims about locks send, else whatever comes, in a list. */
    @SuppressWarnings({"unchecked", "rawtypes"}) // the outputs have no common type of value
    private static CommandOutput<String, String, Object> output(String name) {
      boolean integer = name.endsWith("LOCK") || Set.of("LLEN", "EXISTS", "DEL").contains(name);
      CommandOutput output = integer ? new IntegerOutput<>(StringCodec.UTF8) : new NestedMultiOutput<>(StringCodec.UTF8);
      return output;
    }

    private RedisFuture<Object> send(String[] words) {
      CommandArgs<String, String> arguments = new CommandArgs<>(StringCodec.UTF8);
      for (int i = 1; i < words.length; i++) {
        arguments.add(words[i]);
      }
      return connection.async().dispatch(new Keyword(words[0]), output(words[0]), arguments);
    }

    private static Object outcome(RedisFuture<Object> future) {
      try {
        return future.get(10, TimeUnit.SECONDS);
      } catch (ExecutionException err) {
        return err.getCause();
      } catch (Exception err) {
        return err;
      }
    }

    @Override
    public Object command(String... words) {
      Object outcome = outcome(send(words));
      if (outcome instanceof Exception err) {
        throw err instanceof RuntimeException known ? known : new IllegalStateException(err);
      }
      return outcome;
    }

    @Override
    public List<Object> pipeline(List<String[]> commands) {
      List<RedisFuture<Object>> futures = commands.stream().map(this::send).toList();
      List<Object> outcomes = new ArrayList<>(); // toList() would refuse nulls in some versions
      futures.forEach(future -> outcomes.add(outcome(future)));
      return outcomes;
    }

    @Override
    public void close() {
      if (connection.isOpen()) {
        connection.close();
      }
    }
  }

  private record Keyword(String word) implements ProtocolKeyword {
    @Override
    public byte[] getBytes() {
      return word.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public String toString() {
      return word;
    }
  }

  private static void connect() {
    try (StatefulRedisConnection<byte[], byte[]> connection = PROXY.connect(ByteArrayCodec.INSTANCE)) {
      RedisCommands<byte[], byte[]> redis = connection.sync();
      Check.equal(redis.ping(), "PONG");
      byte[] every = new byte[256];
      for (int i = 0; i < every.length; i++) {
        every[i] = (byte) i;
      }
      byte[] key = "bytes".getBytes(StandardCharsets.UTF_8);
      redis.set(key, every);
      Check.equal(redis.get(key), every);
      byte[] big = "0123456789abcdef".repeat(65536).getBytes(StandardCharsets.UTF_8);
      redis.set(key, big);
      Check.equal(redis.get(key), big);
      Check.equal(redis.get("none".getBytes(StandardCharsets.UTF_8)), null);
    }
  }

  private static void pipeline() throws Exception {
    try (StatefulRedisConnection<String, String> connection = PROXY.connect()) {
      List<RedisFuture<String>> values = new ArrayList<>();
      RedisFuture<Long> wrong = null;
      connection.setAutoFlushCommands(false);
      for (int i = 0; i < 1000; i++) {
        connection.async().set("p:" + i, "" + i);
        values.add(connection.async().get("p:" + i));
        if (i == 500) {
          wrong = connection.async().lpush("p:499", "x");
        }
      }
      connection.flushCommands();
      connection.setAutoFlushCommands(true);
      for (int i = 0; i < 1000; i++) {
        Check.equal(values.get(i).get(10, TimeUnit.SECONDS), i);
      }
      try {
        wrong.get(10, TimeUnit.SECONDS);
        throw new AssertionError("no error");
      } catch (ExecutionException err) {
        Check.claim(err.getCause().getMessage().startsWith("WRONGTYPE"), err.getMessage());
      }
    }
  }

  private static void transaction() {
    try (StatefulRedisConnection<String, String> connection = PROXY.connect()) {
      RedisCommands<String, String> redis = connection.sync();
      redis.set("t", "1");
      redis.watch("t");
      int value = Integer.parseInt(redis.get("t"));
      redis.multi();
      redis.set("t", "" + (value + 1));
      redis.incr("t");
      redis.get("t");
      Check.equal(redis.exec().stream().toList(), List.of("OK", 3, "3"));
    }
  }

  private static void watch() {
    try (StatefulRedisConnection<String, String> connection = PROXY.connect();
        StatefulRedisConnection<String, String> other = PROXY.connect()) {
      RedisCommands<String, String> redis = connection.sync();
      redis.set("w", "1");
      redis.watch("w");
      other.sync().set("w", "2");
      redis.multi();
      redis.set("w", "3");
      TransactionResult result = redis.exec();
      Check.claim(result.wasDiscarded(), "EXEC went through");
      Check.equal(redis.get("w"), "2");
    }
  }

  private static void pubsub() throws Exception {
    List<Integer> messages = Collections.synchronizedList(new ArrayList<>());
    List<Integer> patterns = Collections.synchronizedList(new ArrayList<>());
    CountDownLatch arrived = new CountDownLatch(200);
    try (StatefulRedisConnection<String, String> connection = PROXY.connect();
        StatefulRedisPubSubConnection<String, String> subscriber = PROXY.connectPubSub()) {
      subscriber.addListener(new RedisPubSubAdapter<>() {
        @Override
        public void message(String channel, String message) {
          messages.add(Integer.valueOf(message));
          arrived.countDown();
        }

        @Override
        public void message(String pattern, String channel, String message) {
          patterns.add(Integer.valueOf(message));
          arrived.countDown();
        }
      });
      subscriber.sync().subscribe("news");
      subscriber.sync().psubscribe("n*s");
      // Lettuce's futures settle when the command is written in RESP3, before Redis has it.
      Check.until("the subscriptions", () -> connection.sync().pubsubNumpat() == 1);
      for (int i = 0; i < 100; i++) {
        Check.equal(connection.sync().publish("news", "" + i), 2);
      }
      Check.claim(arrived.await(10, TimeUnit.SECONDS), "messages are missing: " + arrived.getCount());
      List<Integer> hundred = IntStream.range(0, 100).boxed().toList();
      Check.equal(messages, hundred);
      Check.equal(patterns, hundred);
      subscriber.sync().unsubscribe("news");
      subscriber.sync().punsubscribe("n*s");
      Check.until("the end of the subscriptions", () -> connection.sync().publish("news", "0") == 0);
      Check.equal(subscriber.sync().ping(), "PONG");
    }
  }

  private static void blockingPop() throws Exception {
    try (StatefulRedisConnection<String, String> connection = PROXY.connect();
        StatefulRedisConnection<String, String> other = PROXY.connect()) {
      CompletableFuture<KeyValue<String, String>> popped = Check.waiting(() -> connection.sync().blpop(0, "queue"));
      Check.stillWaits(popped, 100);
      other.sync().rpush("queue", "job");
      Check.equal(Check.inTime(popped).getValue(), "job");
      Check.equal(connection.sync().blpop(0.1, "queue"), null);
    }
  }

  private static void script() {
    try (StatefulRedisConnection<String, String> connection = PROXY.connect()) {
      RedisCommands<String, String> redis = connection.sync();
      String text = "return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)";
      String[] keys = {"s"};
      Check.equal(redis.eval(text, ScriptOutputType.INTEGER, keys, "4"), 8);
      String sha = redis.scriptLoad(text);
      Check.equal(redis.evalsha(sha, ScriptOutputType.INTEGER, keys, "1"), 10);
      redis.scriptFlush();
      try {
        redis.evalsha(sha, ScriptOutputType.INTEGER, keys, "1");
        throw new AssertionError("a script survived SCRIPT FLUSH");
      } catch (RedisNoScriptException expected) {
        Check.equal(redis.eval("return ARGV[1]", ScriptOutputType.VALUE, keys, "v"), "v");
      }
    }
  }
}
