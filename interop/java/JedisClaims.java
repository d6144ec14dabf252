import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import redis.clients.jedis.AbstractPipeline;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;

/** Jedis against lockproxy, with the library's defaults. */
public final class JedisClaims {
  public static void main(String[] args) {
    new Claims(Single::new, JedisDataException.class).report(JedisClaims::own);
  }

  private static void own(Check check) {
    check.add("connect", JedisClaims::connect)
        .add("pipeline", JedisClaims::pipeline)
        .add("transaction", JedisClaims::transaction)
        .add("watch", JedisClaims::watch)
        .add("pubsub", JedisClaims::pubsub)
        .add("blocking-pop", JedisClaims::blockingPop)
        .add("script", JedisClaims::script);
  }

  /** One connection outside of any pool. */
  private static final class Single implements Claims.Session {
    private final Connection connection;

    Single(String url) {
      URI uri = URI.create(url);
      connection = new Connection(new HostAndPort(uri.getHost(), uri.getPort()), DefaultJedisClientConfig.builder().build());
    }

    private static CommandArguments arguments(String[] words) {
      ProtocolCommand name = () -> words[0].getBytes(StandardCharsets.UTF_8);
      CommandArguments arguments = new CommandArguments(name);
      for (int i = 1; i < words.length; i++) {
        arguments.add(words[i]);
      }
      return arguments;
    }

    @Override
    public Object command(String... words) {
      return connection.executeCommand(arguments(words));
    }

    @Override
    public List<Object> pipeline(List<String[]> commands) {
      commands.forEach(words -> connection.sendCommand(arguments(words)));
      return connection.getMany(commands.size());
    }

    @Override
    public void close() {
      connection.close();
    }
  }

  private static RedisClient pool() {
    return RedisClient.create(Claims.PROXY);
  }

  private static void connect() {
    try (RedisClient client = pool()) {
      Check.equal(client.ping(), "PONG");
      byte[] every = new byte[256];
      for (int i = 0; i < every.length; i++) {
        every[i] = (byte) i;
      }
      byte[] key = "bytes".getBytes(StandardCharsets.UTF_8);
      client.set(key, every);
      Check.equal(client.get(key), every);
      String big = "0123456789abcdef".repeat(65536);
      client.set("big", big);
      Check.equal(client.get("big"), big);
      Check.equal(client.get("none"), null);
    }
  }

  private static void pipeline() {
    try (RedisClient client = pool(); AbstractPipeline pipeline = client.pipelined()) {
      List<Response<String>> values = new ArrayList<>();
      Response<Long> wrong = null;
      for (int i = 0; i < 1000; i++) {
        pipeline.set("p:" + i, "" + i);
        values.add(pipeline.get("p:" + i));
        if (i == 500) {
          wrong = pipeline.lpush("p:499", "x");
        }
      }
      pipeline.sync();
      for (int i = 0; i < 1000; i++) {
        Check.equal(values.get(i).get(), i);
      }
      try {
        wrong.get();
        throw new AssertionError("no error");
      } catch (JedisDataException err) {
        Check.claim(err.getMessage().startsWith("WRONGTYPE"), err.getMessage());
      }
    }
  }

  private static void transaction() {
    try (RedisClient client = pool()) {
      client.set("t", "1");
      try (AbstractTransaction transaction = client.transaction(false)) {
        transaction.watch("t");
        transaction.multi();
        transaction.set("t", "2");
        transaction.incr("t");
        transaction.get("t");
        Check.equal(transaction.exec(), List.of("OK", 3, "3"));
      }
    }
  }

  private static void watch() {
    try (RedisClient client = pool()) {
      client.set("w", "1");
      try (AbstractTransaction transaction = client.transaction(false)) {
        transaction.watch("w");
        client.set("w", "2");
        transaction.multi();
        transaction.set("w", "3");
        Check.equal(transaction.exec(), null);
      }
      Check.equal(client.get("w"), "2");
    }
  }

  private static void pubsub() throws Exception {
    List<Integer> messages = Collections.synchronizedList(new ArrayList<>());
    List<Integer> patterns = Collections.synchronizedList(new ArrayList<>());
    CountDownLatch subscribed = new CountDownLatch(2);
    CountDownLatch arrived = new CountDownLatch(200);
    JedisPubSub listener = new JedisPubSub() {
      @Override
      public void onSubscribe(String channel, int count) {
        subscribed.countDown();
      }

      @Override
      public void onPSubscribe(String pattern, int count) {
        subscribed.countDown();
      }

      @Override
      public void onMessage(String channel, String message) {
        messages.add(Integer.valueOf(message));
        arrived.countDown();
      }

      @Override
      public void onPMessage(String pattern, String channel, String message) {
        patterns.add(Integer.valueOf(message));
        arrived.countDown();
      }
    };
    try (RedisClient client = pool(); RedisClient subscriber = pool()) {
      CompletableFuture<Object> ended = Check.waiting(() -> {
        subscriber.subscribe(listener, "news");
        return null;
      });
      Check.until("the subscription", () -> subscribed.getCount() == 1);
      listener.psubscribe("n*s");
      Check.claim(subscribed.await(10, TimeUnit.SECONDS), "no second subscription");
      for (int i = 0; i < 100; i++) {
        Check.equal(client.publish("news", "" + i), 2);
      }
      Check.claim(arrived.await(10, TimeUnit.SECONDS), "messages are missing: " + arrived.getCount());
      List<Integer> hundred = IntStream.range(0, 100).boxed().toList();
      Check.equal(messages, hundred);
      Check.equal(patterns, hundred);
      listener.unsubscribe();
      listener.punsubscribe();
      Check.inTime(ended);
      Check.equal(client.publish("news", "x"), 0);
    }
  }

  private static void blockingPop() throws Exception {
    try (RedisClient client = pool()) {
      CompletableFuture<List<String>> popped = Check.waiting(() -> client.blpop(0, "queue"));
      Check.stillWaits(popped, 100);
      client.rpush("queue", "job");
      Check.equal(Check.inTime(popped), List.of("queue", "job"));
      Check.equal(client.blpop(0.1, "queue"), null);
    }
  }

  private static void script() {
    try (RedisClient client = pool()) {
      String text = "return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)";
      Check.equal(client.eval(text, 1, "s", "4"), 8);
      String sha = client.scriptLoad(text);
      Check.equal(client.evalsha(sha, 1, "s", "1"), 10);
      client.scriptFlush();
      try {
        client.evalsha(sha, 1, "s", "1");
        throw new AssertionError("a script survived SCRIPT FLUSH");
      } catch (JedisNoScriptException expected) {
        Check.equal(client.eval("return {KEYS[1], ARGV[1]}", 1, "k", "v"), List.of("k", "v"));
      }
    }
  }
}
