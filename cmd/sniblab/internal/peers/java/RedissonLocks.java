import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Locks of Redisson. */
class RedissonLocks {
    static RedissonClient connect(String url, long ttl) {
        Config config = new Config();
        config.setLockWatchdogTimeout(ttl);
        config.useSingleServer().setAddress(url);
        return Redisson.create(config);
    }

    /** An RLock without a lease time, which the watchdog extends. */
    static Target.Locker watchdog(String url, String name, long ttl) {
        RLock lock = connect(url, ttl).getLock(name);
        return wait -> lock.tryLock(wait, TimeUnit.MILLISECONDS) ? hold(lock, 0) : null;
    }

    /** An RLock with a lease time, which nobody extends. */
    static Target.Locker lease(String url, String name, long ttl) {
        RLock lock = connect(url, ttl).getLock(name);
        return wait -> lock.tryLock(wait, ttl, TimeUnit.MILLISECONDS) ? hold(lock, 0) : null;
    }

    /** An RFencedLock without a lease time. */
    static Target.Locker fenced(String url, String name, long ttl) {
        RFencedLock lock = connect(url, ttl).getFencedLock(name);
        return wait -> {
            Long token = lock.tryLockAndGetToken(wait, TimeUnit.MILLISECONDS);
            return token == null ? null : hold(lock, token);
        };
    }

    static Target.Hold hold(RLock lock, long token) {
        return new Target.Hold() {
            public long token() {
                return token;
            }

            public boolean held() {
                return lock.isHeldByCurrentThread();
            }

            public void release() {
                lock.unlock();
            }
        };
    }
}
