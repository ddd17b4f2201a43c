import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** The InterProcessMutex of Curator. */
class CuratorLocks {
    /** With listen, a holder believes nothing from SUSPENDED to RECONNECTED, nor after LOST. */
    static Target.Locker open(String url, String name, long ttl, boolean listen) throws Exception {
        int timeout = (int) ttl;
        CuratorFramework client = CuratorFrameworkFactory.newClient(
                url.substring("zk://".length()), timeout, timeout, new ExponentialBackoffRetry(1000, 3));
        State state = new State();
        if (listen) {
            client.getConnectionStateListenable().addListener((c, s) -> state.changed(s));
        }
        client.start();
        if (!client.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new Exception("no connection to ZooKeeper");
        }
        return wait -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/" + name);
            state.lost = false;
            if (!mutex.acquire(wait, TimeUnit.MILLISECONDS)) {
                return null;
            }
            return new Target.Hold() {
                public boolean held() {
                    return mutex.isAcquiredInThisProcess() && !state.suspended && !state.lost;
                }

                public void release() throws Exception {
                    mutex.release();
                }
            };
        };
    }

    static class State {
        volatile boolean suspended;
        volatile boolean lost; // since the last acquisition began

        void changed(ConnectionState state) {
            suspended = !state.isConnected();
            lost |= state == ConnectionState.LOST;
        }
    }
}
