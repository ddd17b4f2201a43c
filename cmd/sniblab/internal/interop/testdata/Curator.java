import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;

/**
 * Does what lines of its standard input say, each a thread of its own, and answers with lines that begin with the thread's name:
 * "NAME lock KIND PATH MILLISECONDS" is answered with "yes" or "no", "NAME unlock" with "done". KIND is mutex, read, write, semmutex
 * or semaphore.
 */
class Curator {
    public static void main(String[] args) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 5000, new RetryOneTime(100));
        client.start();
        Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
        Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String[] order = in.nextLine().split(" ");
            threads.computeIfAbsent(order[0], name -> Executors.newSingleThreadExecutor()).execute(() -> {
                String answer;
                try {
                    answer = obey(client, locks, order);
                } catch (Exception e) {
                    answer = "error " + e;
                }
                synchronized (System.out) {
                    System.out.println(order[0] + " " + answer);
                }
            });
        }
        System.exit(0);
    }

    static String obey(CuratorFramework client, Map<String, InterProcessLock> locks, String[] order) throws Exception {
        if (order[1].equals("unlock")) {
            locks.remove(order[0]).release();
            return "done";
        }
        InterProcessLock lock = switch (order[2]) {
            case "read" -> new InterProcessReadWriteLock(client, order[3]).readLock();
            case "write" -> new InterProcessReadWriteLock(client, order[3]).writeLock();
            case "semmutex" -> new InterProcessSemaphoreMutex(client, order[3]);
            case "semaphore" -> new Slot(new InterProcessSemaphoreV2(client, order[3], 2));
            default -> new InterProcessMutex(client, order[3]);
        };
        if (!lock.acquire(Long.parseLong(order[4]), TimeUnit.MILLISECONDS)) {
            return "no";
        }
        locks.put(order[0], lock);
        return "yes";
    }

    /** One lease of a semaphore. */
    static class Slot implements InterProcessLock {
        final InterProcessSemaphoreV2 semaphore;
        Lease lease;

        Slot(InterProcessSemaphoreV2 semaphore) {
            this.semaphore = semaphore;
        }

        public void acquire() throws Exception {
            lease = semaphore.acquire();
        }

        public boolean acquire(long time, TimeUnit unit) throws Exception {
            lease = semaphore.acquire(time, unit);
            return lease != null;
        }

        public void release() {
            semaphore.returnLease(lease);
        }

        public boolean isAcquiredInThisProcess() {
            return lease != null;
        }
    }
}
