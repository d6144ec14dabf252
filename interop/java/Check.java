import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;

/** A list of claims, each reported as one line, "ok CLAIM" or "FAIL CLAIM: reason", and what their checks are made of. */
final class Check {
  static final long LIMIT = 10; // seconds that anything may take

  interface Claim {
    void check() throws Exception;
  }

  private final Map<String, Claim> all = new LinkedHashMap<>();
  private static final ThreadLocal<String> note = ThreadLocal.withInitial(() -> ""); // on the claim that the thread checks

  Check add(String name, Claim claim) {
    all.put(name, claim);
    return this;
  }

  /** Runs the claims one after the other, reports each as one line, and ends the process. */
  void report() {
    report(1);
  }

  /** The same for so many claims at a time. */
  void report(int together) {
    AtomicBoolean held = new AtomicBoolean(true);
    ExecutorService threads = Executors.newFixedThreadPool(together);
    all.entrySet().stream().map(claim -> CompletableFuture.runAsync(() -> {
      note.remove();
      try {
        claim.getValue().check();
        System.out.println(("ok " + claim.getKey() + " " + note.get()).strip());
      } catch (Throwable err) {
        held.set(false);
        System.out.println("FAIL " + claim.getKey() + ": " + cut(err.toString()).replaceAll("[\r\n]+", " "));
      }
    }, threads)).toList().forEach(CompletableFuture::join);
    System.exit(held.get() ? 0 : 1);
  }

  /** Puts a figure beside the claim that is being checked. */
  static void note(String text) {
    note.set(text);
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
      return list.stream().map(Check::show).toList().toString();
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

  static String cut(String text) {
    return text.length() > 500 ? text.substring(0, 500) + "…" : text;
  }
}
