import com.google.gson.Gson;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;

/** What both Java clients share: the claims about locks and the mixed operations, by raw command. */
final class Claims {
  static final String DIRECT = System.getenv("REDIS_URL");
  static final String PROXY = System.getenv("LOCKPROXY_URL");

  /** One connection. An error reply is an exception with Redis's text as its message. */
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
  private final Library library;

  Claims(Library library, Class<? extends RuntimeException> errorReply) {
    this.library = library;
    this.errorReply = errorReply;
  }

  /** Adds the claims that a library proves by its own calls, runs all of them, and ends the process. */
  void report(Consumer<Check> own) {
    Check all = new Check();
    own.accept(all);
    all.add("mixed", this::mixed)
        .add("lock", this::lock)
        .add("lock-reentry", this::reentry)
        .add("lock-busy", this::busy)
        .add("lock-wait", this::waits)
        .add("lock-fair", this::fair)
        .add("lock-hangup", this::hangup)
        .add("lock-lost", this::lost)
        .add("lock-owner", this::owner)
        .report();
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
        Check.equal(outcome(proxied, command), outcome(direct, command), "operation " + i + " " + Check.cut(Arrays.toString(command)));
      }
      for (int start = half; start < commands.length; start += 50) {
        List<String[]> some = Arrays.asList(commands).subList(start, Math.min(start + 50, commands.length));
        List<Object> got = proxied.pipeline(some);
        List<Object> want = direct.pipeline(some);
        for (int i = 0; i < some.size(); i++) {
          Check.claim(!(want.get(i) instanceof Exception) || errorReply.isInstance(want.get(i)), Check.show(want.get(i)));
          Check.equal(got.get(i), want.get(i), "in the pipeline at " + start + " " + Check.cut(Arrays.toString(some.get(i))));
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
        Check.claim(fence > last, "the fence did not grow");
        last = fence;
        Check.equal(s.command("UNLOCK", "a"), 1);
      }
      long fence = number(s.command("LOCK", "a", "PX", "5000"));
      Check.claim(fence > last, "the fence did not grow");
      Check.equal(s.command("UNLOCK", "a", "FENCE", Long.toString(fence)), 1);
      Check.refused("ERR", () -> s.command("LOCK", "a", "PX", "1", "EX", "1"));
    }
  }

  private void reentry() throws Exception {
    try (Session s = open()) {
      Object fence = s.command("LOCK", "b");
      Check.equal(s.command("LOCK", "b", "WAIT", "50"), null);
      Check.refused("ERR", () -> s.command("UNLOCK", "b"));
      Check.equal(s.command("UNLOCK", "b", "FENCE", fence.toString()), 1);
      Object named = s.command("LOCK", "b", "OWNER", "job-9");
      Check.equal(s.command("LOCK", "b", "OWNER", "job-9"), named);
      Check.equal(s.command("UNLOCK", "b", "OWNER", "job-9"), 0);
      Check.equal(s.command("UNLOCK", "b", "OWNER", "job-9"), 1);
      Check.refused("NOTHELD", () -> s.command("UNLOCK", "b", "OWNER", "job-9"));
    }
  }

  private void busy() throws Exception {
    try (Session holder = open(); Session other = open()) {
      holder.command("LOCK", "c");
      Check.equal(other.command("TRYLOCK", "c"), null);
      Check.equal(other.command("LOCK", "c", "WAIT", "50"), null);
      Check.refused("NOTHELD", () -> other.command("UNLOCK", "c"));
      Check.equal(holder.command("UNLOCK", "c"), 1);
    }
  }

  private void waits() throws Exception {
    try (Session holder = open(); Session other = open()) {
      long fence = number(holder.command("LOCK", "d"));
      CompletableFuture<Object> granted = Check.waiting(() -> other.command("LOCK", "d"));
      Check.stillWaits(granted, 100);
      Check.equal(holder.command("UNLOCK", "d"), 1);
      Check.claim(number(Check.inTime(granted)) > fence, "the fence did not grow");
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
        granted.add(Check.waiting(() -> s.command("FAIRLOCK", "e")));
        Check.until(i + " in the queue", () -> number(holder.command("LLEN", "redisson_lock_queue:{e}")) == want);
      }
      Check.equal(holder.command("UNLOCK", "e"), 1);
      for (int i = 0; i < 3; i++) {
        long next = number(Check.inTime(granted.get(i)));
        Check.claim(next > fence, "the fence did not grow");
        fence = next;
        for (CompletableFuture<Object> later : granted.subList(i + 1, 3)) {
          Check.stillWaits(later, 20);
        }
        Check.equal(sessions.get(i).command("UNLOCK", "e"), 1);
      }
      sessions.forEach(Session::close);
    }
  }

  private void hangup() throws Exception {
    try (Session holder = open(); Session other = open()) {
      holder.command("LOCK", "f", "GRACE", "0");
      CompletableFuture<Object> granted = Check.waiting(() -> other.command("LOCK", "f"));
      Check.stillWaits(granted, 100);
      holder.close();
      Check.claim(number(Check.inTime(granted)) > 0, "no fence");
    }
  }

  private void lost() throws Exception {
    try (Session s = open()) {
      s.command("LOCK", "g", "PX", "1000");
      Check.until("the lease to end", () -> number(s.command("EXISTS", "g")) == 0);
      Check.refused("LOSTLEASE", () -> s.command("UNLOCK", "g"));
      s.command("LOCK", "h");
      s.command("DEL", "h");
      Check.refused("LOSTLEASE", () -> s.command("UNLOCK", "h"));
    }
  }

  private void owner() throws Exception {
    try (Session one = open(); Session other = open()) {
      one.command("LOCK", "i", "OWNER", "job-7");
      Check.refused("NOTHELD", () -> other.command("UNLOCK", "i", "OWNER", "job-8"));
      Check.equal(other.command("UNLOCK", "i", "OWNER", "job-7"), 1);
    }
  }
}
