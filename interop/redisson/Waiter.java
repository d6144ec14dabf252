import org.redisson.api.RLock;

/** Queues for a fair lock and never releases it: a process of its own, to be killed. Arguments: url, lock. */
public final class Waiter {
  public static void main(String[] args) {
    RLock lock = Scenarios.redisson(args[0]).getFairLock(args[1]);
    lock.lock();
    System.out.println("granted");
  }
}
