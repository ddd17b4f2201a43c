import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.data.redis.connection.RedisStandaloneConfiguration;
import org.springframework.data.redis.connection.jedis.JedisConnectionFactory;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * Locks of ShedLock, without a framework. It does not wait for a lock: the wait is a loop here. It can't tell whether a lock is
 * still held.
 */
class ShedLocks {
    static Target.Locker redis(String url, String name, long ttl) {
        URI address = URI.create(url);
        JedisConnectionFactory connections =
                new JedisConnectionFactory(new RedisStandaloneConfiguration(address.getHost(), address.getPort()));
        connections.afterPropertiesSet();
        connections.start();
        return locker(new RedisLockProvider(connections), name, ttl);
    }

    /** The table is that of the documentation, and the time is that of the database, as it recommends. */
    static Target.Locker jdbc(String url, String name, long ttl) {
        URI address = URI.create(url);
        PGSimpleDataSource database = new PGSimpleDataSource();
        database.setUrl("jdbc:postgresql://" + address.getHost() + ":" + address.getPort() + address.getPath());
        database.setUser(address.getUserInfo());
        JdbcTemplate template = new JdbcTemplate(database);
        // The clients of a trial start at the same time, and CREATE TABLE IF NOT EXISTS can collide with itself.
        template.execute("DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); "
                + "CREATE TABLE IF NOT EXISTS shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, "
                + "locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name)); END $$");
        return locker(
                new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                        .withJdbcTemplate(template)
                        .usingDbTime()
                        .build()),
                name,
                ttl);
    }

    static Target.Locker locker(LockProvider provider, String name, long ttl) {
        return wait -> {
            for (long end = System.nanoTime() + wait * 1_000_000; ; Thread.sleep(20)) {
                LockConfiguration once = new LockConfiguration(Instant.now(), name, Duration.ofMillis(ttl), Duration.ZERO);
                Optional<SimpleLock> lock = provider.lock(once);
                if (lock.isPresent()) {
                    return hold(lock.get());
                }
                if (System.nanoTime() > end) {
                    return null;
                }
            }
        };
    }

    static Target.Hold hold(SimpleLock lock) {
        return new Target.Hold() {
            public boolean held() {
                return true;
            }

            public void release() {
                lock.unlock();
            }
        };
    }
}
