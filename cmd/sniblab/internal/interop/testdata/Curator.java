import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
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
 * Acquires and releases locks by order, as python/zookeeper.py does: one JSON object for each line of its standard input, and one
 * with the same id as the answer. Each lock has a thread of its own, because Curator's mutexes belong to threads. The name of a lock
 * is its kind and its path; a kind is mutex, read, write, semmutex or semaphore. Its ttl is how long to wait.
 */
class Curator {
    static final Pattern FIELD = Pattern.compile("\"(\\w+)\":\"?([^\",}]*)"); // no text has a quotation mark

    public static void main(String[] args) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0] + ":" + args[1], 10000, 5000, new RetryOneTime(100));
        client.start();
        Map<String, ExecutorService> threads = new ConcurrentHashMap<>(); // by the values of locks
        Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            Map<String, String> order = new HashMap<>();
            FIELD.matcher(in.nextLine()).results().forEach(field -> order.put(field.group(1), field.group(2)));
            String value = order.getOrDefault("value", order.get("id"));
            threads.computeIfAbsent(value, name -> Executors.newSingleThreadExecutor()).execute(() -> {
                String answer;
                try {
                    answer = obey(client, locks, value, order) ? "\"value\":\"" + value + "\"" : "\"refused\":true";
                } catch (Exception e) {
                    answer = "\"error\":\"" + e.toString().replace('"', '\'') + "\"";
                }
                synchronized (System.out) {
                    System.out.println("{\"id\":" + order.get("id") + "," + answer + "}");
                }
            });
        }
        System.exit(0);
    }

    static boolean obey(CuratorFramework client, Map<String, InterProcessLock> locks, String value, Map<String, String> order) throws Exception {
        if (order.get("order").equals("release")) {
            locks.remove(value).release();
            return true;
        }
        String[] name = order.get("name").split(" ");
        InterProcessLock lock = switch (name[0]) {
            case "read" -> new InterProcessReadWriteLock(client, name[1]).readLock();
            case "write" -> new InterProcessReadWriteLock(client, name[1]).writeLock();
            case "semmutex" -> new InterProcessSemaphoreMutex(client, name[1]);
            case "semaphore" -> new Slot(new InterProcessSemaphoreV2(client, name[1], 2));
            default -> new InterProcessMutex(client, name[1]);
        };
        if (!lock.acquire(Long.parseLong(order.get("ttl")), TimeUnit.MILLISECONDS)) {
            return false;
        }
        locks.put(value, lock);
        return true;
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
