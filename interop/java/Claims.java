import com.google.gson.Gson;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** What both Java clients share: the claims about locks and the mixed operations, by raw command, and the report. */
final class Claims {
  static final String DIRECT = System.getenv("REDIS_URL");
  static final String PROXY = System.getenv("LOCKPROXY_URL");
  private static final long LIMIT = 10; // seconds that anything may take

  /** One connection, and so one owner of locks. An error reply is an exception with Redis's text as its message. */
  interface Session extends AutoCloseable {
    Object command(String... args);

    /** Sends all before it reads; an error reply is an element of the list. */
    List<Object> pipeline(List<String[]> commands);

    @Override
    void close();
  }

  interface Library {
    Session open(String url);
  }

  /** Any other exception than the library's own for an error reply is a failure, not an outcome to compare. */
  private final Class<? extends RuntimeException> errorReply;

  interface Claim {
    void check() throws Exception;
  }

  private final Library library;
  private final Map<String, Claim> all = new LinkedHashMap<>();

  Claims(Library library, Class<? extends RuntimeException> errorReply) {
    this.library = library;
    this.errorReply = errorReply;
    add("mixed", this::mixed);
    add("lock", this::lock);
    add("lock-reentry", this::reentry);
    add("lock-busy", this::busy);
    add("lock-wait", this::waits);
    add("lock-fair", this::fair);
    add("lock-hangup", this::hangup);
    add("lock-lost", this::lost);
    add("lock-owner", this::owner);
  }

  Claims add(String name, Claim claim) {
    all.put(name, claim);
    return this;
  }

  /** Runs the claims, reports each as one line, and ends the process. */
  void report() {
    boolean held = true;
    for (Map.Entry<String, Claim> claim : all.entrySet()) {
      try {
        claim.getValue().check();
        System.out.println("ok " + claim.getKey());
      } catch (Throwable err) {
        held = false;
        System.out.println("FAIL " + claim.getKey() + ": " + cut(err.toString()).replaceAll("[\r\n]+", " "));
      }
    }
    System.exit(held ? 0 : 1);
  }

  static void equal(Object got, Object want) {
    equal(got, want, "");
  }

  static void equal(Object got, Object want, String what) {
    String g = show(got);
    String w = show(want);
    if (!g.equals(w)) {
      throw new AssertionError(what + " got " + cut(g) + ", want " + cut(w));
    }
  }

  static void claim(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  static void refused(String code, Callable<?> call) throws Exception {
    Object reply;
    try {
      reply = call.call();
    } catch (RuntimeException err) {
      claim(String.valueOf(err.getMessage()).startsWith(code), "got error " + err + ", want " + code);
      return;
    }
    throw new AssertionError("got " + show(reply) + ", want " + code);
  }

  static void until(String what, Callable<Boolean> holds) throws Exception {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT);
    while (!holds.call()) {
      claim(System.nanoTime() < end, "waited in vain for " + what);
      Thread.sleep(5);
    }
  }

  static <T> T inTime(CompletableFuture<T> future) throws Exception {
    return future.get(LIMIT, TimeUnit.SECONDS);
  }

  /** Runs a call that waits in a thread of its own. */
  static <T> CompletableFuture<T> waiting(Callable<T> call) {
    CompletableFuture<T> future = new CompletableFuture<>();
    Thread thread = new Thread(() -> {
      try {
        future.complete(call.call());
      } catch (Throwable err) {
        future.completeExceptionally(err);
      }
    });
    thread.setDaemon(true);
    thread.start();
    return future;
  }

  static void stillWaits(CompletableFuture<?> future, long millis) throws Exception {
    try {
      throw new AssertionError("did not wait: " + show(future.get(millis, TimeUnit.MILLISECONDS)));
    } catch (TimeoutException expected) {
      // it waits
    }
  }

  /** A reply as text, whatever types a library makes of it. */
  static String show(Object reply) {
    if (reply instanceof byte[] bytes) {
      return new String(bytes, StandardCharsets.ISO_8859_1);
    }
    if (reply instanceof Collection<?> list) {
      return list.stream().map(Claims::show).toList().toString();
    }
    if (reply instanceof Map<?, ?> map) {
      List<String> pairs = new ArrayList<>();
      map.forEach((k, v) -> pairs.add(show(k) + "=" + show(v)));
      return pairs.toString();
    }
    if (reply instanceof Map.Entry<?, ?> entry) {
      return show(entry.getKey()) + "=" + show(entry.getValue());
    }
    if (reply instanceof Throwable err) {
      return err.getClass().getSimpleName() + " " + err.getMessage();
    }
    return Objects.toString(reply);
  }

  private static String cut(String text) {
    return text.length() > 500 ? text.substring(0, 500) + "…" : text;
  }

  private Session open() {
    return library.open(PROXY);
  }

  private static long number(Object reply) {
    return (Long) reply;
  }

  /** Compares the operations' replies. Half of them are sent one by one, the others 50 at a time. */
  private void mixed() throws Exception {
    String text = Files.readString(Path.of(System.getenv("OPERATIONS")));
    String[][] commands = new Gson().fromJson(text, String[][].class);
    try (Session direct = library.open(DIRECT); Session proxied = library.open(PROXY)) {
      int half = commands.length / 2;
      for (int i = 0; i < half; i++) {
        String[] command = commands[i];
        equal(outcome(proxied, command), outcome(direct, command), "operation " + i + " " + cut(Arrays.toString(command)));
      }
      for (int start = half; start < commands.length; start += 50) {
        List<String[]> some = Arrays.asList(commands).subList(start, Math.min(start + 50, commands.length));
        List<Object> got = proxied.pipeline(some);
        List<Object> want = direct.pipeline(some);
        for (int i = 0; i < some.size(); i++) {
          claim(!(want.get(i) instanceof Exception) || errorReply.isInstance(want.get(i)), show(want.get(i)));
          equal(got.get(i), want.get(i), "in the pipeline at " + start + " " + cut(Arrays.toString(some.get(i))));
        }
      }
    }
  }

  private Object outcome(Session session, String[] command) {
    try {
      return session.command(command);
    } catch (RuntimeException err) {
      if (!errorReply.isInstance(err)) {
        throw err;
      }
      return err;
    }
  }

  private void lock() throws Exception {
    try (Session s = open()) {
      long last = 0;
      for (String verb : List.of("LOCK", "TRYLOCK", "FAIRLOCK")) {
        long fence = number(s.command(verb, "a", "WAIT", "1000"));
        claim(fence > last, "the fence did not grow");
        last = fence;
        equal(s.command("UNLOCK", "a"), 1);
      }
      long fence = number(s.command("LOCK", "a", "PX", "5000"));
      claim(fence > last, "the fence did not grow");
      equal(s.command("UNLOCK", "a", "FENCE", Long.toString(fence)), 1);
      refused("ERR", () -> s.command("LOCK", "a", "PX", "1", "EX", "1"));
    }
  }

  private void reentry() throws Exception {
    try (Session s = open()) {
      Object fence = s.command("LOCK", "b");
      equal(s.command("LOCK", "b"), fence);
      equal(s.command("UNLOCK", "b"), 0);
      equal(s.command("UNLOCK", "b"), 1);
      refused("NOTHELD", () -> s.command("UNLOCK", "b"));
    }
  }

  private void busy() throws Exception {
    try (Session holder = open(); Session other = open()) {
      holder.command("LOCK", "c");
      equal(other.command("TRYLOCK", "c"), null);
      equal(other.command("LOCK", "c", "WAIT", "50"), null);
      refused("NOTHELD", () -> other.command("UNLOCK", "c"));
      equal(holder.command("UNLOCK", "c"), 1);
    }
  }

  private void waits() throws Exception {
    try (Session holder = open(); Session other = open()) {
      long fence = number(holder.command("LOCK", "d"));
      CompletableFuture<Object> granted = waiting(() -> other.command("LOCK", "d"));
      stillWaits(granted, 100);
      equal(holder.command("UNLOCK", "d"), 1);
      claim(number(inTime(granted)) > fence, "the fence did not grow");
    }
  }

  private void fair() throws Exception {
    try (Session holder = open()) {
      long fence = number(holder.command("FAIRLOCK", "e"));
      List<Session> sessions = new ArrayList<>();
      List<CompletableFuture<Object>> granted = new ArrayList<>();
      for (int i = 1; i <= 3; i++) {
        Session s = open();
        long want = i;
        sessions.add(s);
        granted.add(waiting(() -> s.command("FAIRLOCK", "e")));
        until(i + " in the queue", () -> number(holder.command("LLEN", "redisson_lock_queue:{e}")) == want);
      }
      equal(holder.command("UNLOCK", "e"), 1);
      for (int i = 0; i < 3; i++) {
        long next = number(inTime(granted.get(i)));
        claim(next > fence, "the fence did not grow");
        fence = next;
        for (CompletableFuture<Object> later : granted.subList(i + 1, 3)) {
          stillWaits(later, 20);
        }
        equal(sessions.get(i).command("UNLOCK", "e"), 1);
      }
      sessions.forEach(Session::close);
    }
  }

  private void hangup() throws Exception {
    try (Session holder = open(); Session other = open()) {
      holder.command("LOCK", "f", "GRACE", "0");
      CompletableFuture<Object> granted = waiting(() -> other.command("LOCK", "f"));
      stillWaits(granted, 100);
      holder.close();
      claim(number(inTime(granted)) > 0, "no fence");
    }
  }

  private void lost() throws Exception {
    try (Session s = open()) {
      s.command("LOCK", "g", "PX", "50");
      until("the lease to end", () -> number(s.command("EXISTS", "g")) == 0);
      refused("LOSTLEASE", () -> s.command("UNLOCK", "g"));
      s.command("LOCK", "h");
      s.command("DEL", "h");
      refused("LOSTLEASE", () -> s.command("UNLOCK", "h"));
    }
  }

  private void owner() throws Exception {
    try (Session one = open(); Session other = open()) {
      one.command("LOCK", "i", "OWNER", "job-7");
      refused("NOTHELD", () -> other.command("UNLOCK", "i", "OWNER", "job-8"));
      equal(other.command("UNLOCK", "i", "OWNER", "job-7"), 1);
    }
  }
}
