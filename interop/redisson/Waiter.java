import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Waits for a lock and never releases it: a process of its own, to be killed. Arguments: url, lock, and which kind of lock. */
public final class Waiter {
  public static void main(String[] args) {
    RedissonClient redisson = Scenarios.redisson(args[0]);
    RLock lock = switch (args[2]) {
      case "read" -> redisson.getReadWriteLock(args[1]).readLock();
      case "write" -> redisson.getReadWriteLock(args[1]).writeLock();
      default -> redisson.getFairLock(args[1]);
    };
    System.out.println("waits");
    lock.lock();
    System.out.println("granted");
  }
}
