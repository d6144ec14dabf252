import io.lettuce.core.RedisClient;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** A client of a library in Redis's absence: "ready", then a line with what has happened when a line is read. */
public final class Outages {
  private Outages() {}

  private static Runnable open(String library, String url) {
    if (library.equals("lettuce")) {
      var commands = RedisClient.create(url).connect().sync();
      return () -> commands.incr("lettuce");
    }
    URI uri = URI.create(url);
    var client = redis.clients.jedis.RedisClient.builder().hostAndPort(uri.getHost(), uri.getPort()).build();
    return () -> client.incr("jedis");
  }

  public static void main(String[] args) throws Exception {
    Runnable step = open(args[0], args[1]);
    AtomicInteger done = new AtomicInteger();
    AtomicBoolean over = new AtomicBoolean();
    List<String> failures = Collections.synchronizedList(new ArrayList<>());
    List<Thread> threads = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      Thread thread = new Thread(() -> {
        while (!over.get()) {
          try {
            step.run();
            done.incrementAndGet();
          } catch (RuntimeException e) {
            failures.add(e.toString().replace('"', '\''));
          }
          pause(20);
        }
      });
      thread.start();
      threads.add(thread);
    }
    while (done.get() < 50) {
      pause(10);
    }
    System.out.println("ready");
    new BufferedReader(new InputStreamReader(System.in)).readLine();
    int before = done.get();
    for (long limit = System.currentTimeMillis() + 60_000; done.get() < before + 50 && System.currentTimeMillis() < limit; ) {
      pause(50);
    }
    over.set(true);
    String first = failures.isEmpty() ? "" : "\"" + failures.get(0).replace("\\", "").replace("\n", " ") + "\"";
    System.out.println("{\"done\":" + (done.get() - before) + ",\"failures\":" + failures.size() + ",\"first\":[" + first + "]}");
    System.exit(0);
  }

  private static void pause(int ms) {
    try {
      Thread.sleep(ms);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
