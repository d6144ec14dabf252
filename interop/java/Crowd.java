import io.lettuce.core.RedisClient;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.support.ConnectionPoolSupport;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/** 400 threads take turns under one lock, with Lettuce: locks borrow dedicated connections, data shares one. */
public final class Crowd {
  private static final int TASKS = 400;
  private static final AtomicInteger inside = new AtomicInteger();
  private static final AtomicInteger most = new AtomicInteger();

  public static void main(String[] args) throws Exception {
    RedisClient client = RedisClient.create(System.getenv("LOCKPROXY_URL"));
    StatefulRedisConnection<String, String> data = client.connect();
    var config = new GenericObjectPoolConfig<StatefulRedisConnection<String, String>>();
    config.setMaxTotal(16);
    config.setMaxIdle(16);
    var locks = ConnectionPoolSupport.createGenericObjectPool(client::connect, config);
    data.sync().del("crowd:count");
    ExecutorService threads = Executors.newFixedThreadPool(TASKS);
    List<Future<?>> tasks = new ArrayList<>();
    for (int i = 0; i < TASKS; i++) {
      tasks.add(threads.submit(() -> task(locks, data)));
    }
    for (Future<?> task : tasks) {
      task.get();
    }
    System.out.printf("count %s, at most %d inside%n", data.sync().get("crowd:count"), most.get());
    System.exit(0);
  }

  private static Void task(GenericObjectPool<StatefulRedisConnection<String, String>> locks,
      StatefulRedisConnection<String, String> data) throws Exception {
    Thread.sleep(ThreadLocalRandom.current().nextInt(1000));
    try (StatefulRedisConnection<String, String> own = locks.borrowObject()) { // close() returns it
      while (command(own, "LOCK", "crowd", "WAIT", "3000") == null) {
        // not in time: ask again
      }
      try {
        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
        String seen = data.sync().get("crowd:count");
        data.sync().set("crowd:count", String.valueOf(seen == null ? 1 : Integer.parseInt(seen) + 1));
        inside.decrementAndGet();
      } finally {
        command(own, "UNLOCK", "crowd");
      }
    }
    return null;
  }

  private static Long command(StatefulRedisConnection<String, String> own, String name, String... args) {
    var words = new CommandArgs<>(StringCodec.UTF8);
    for (String arg : args) {
      words.add(arg);
    }
    return own.sync().dispatch(() -> name.getBytes(), new IntegerOutput<>(StringCodec.UTF8), words);
  }
}
