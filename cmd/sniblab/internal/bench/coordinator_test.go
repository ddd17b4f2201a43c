//go:build unix

package bench

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// sessionTTL is that of etcdlock and zklock by default.
const sessionTTL = 15 * time.Second

func etcdLibraries() []library {
	return []library{
		{"snib", usual | hold, openEtcdlock},
		{"mutex", usual, openMutex(false)},
		{"mutex-one-session", hold, openMutex(true)},
	}
}

// BenchmarkEtcd has one etcd, which waits for the disk.
func BenchmarkEtcd(b *testing.B) {
	benchmark(b, newStore("Etcd", etcdtest.Start(b).Process), etcdLibraries())
}

func zookeeperLibraries() []library {
	return []library{
		{"snib", usual | hold, func(addrs []string) (*client, error) { return snibClient(zklock.New(addrs)) }},
		{"go-zookeeper", usual | hold, openGoZooKeeper},
	}
}

// BenchmarkZooKeeper has one ZooKeeper, which waits for the disk.
func BenchmarkZooKeeper(b *testing.B) {
	s := newStore("ZooKeeper", zktest.Single(b, zktest.Production).Process)
	if !testing.Short() {
		warmUp(b, s)
	}
	benchmark(b, s, zookeeperLibraries())
}

// warmUp lets the server's virtual machine compile its code, which would otherwise slow the first
// library down.
func warmUp(b *testing.B, s *store) {
	c, err := openGoZooKeeper(s.addrs)
	if err != nil {
		b.Fatal(err)
	}
	defer c.close()
	for began := time.Now(); time.Since(began) < time.Second; {
		if err := cycle(c.take(1)[0], "warm-up"); err != nil {
			b.Fatal(err)
		}
	}
}

func dialEtcd(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

func openEtcdlock(addrs []string) (*client, error) {
	conn, err := dialEtcd(addrs)
	if err != nil {
		return nil, err
	}
	c, err := snibClient(etcdlock.New(conn))
	if err != nil {
		return nil, err
	}
	closeLocker := c.close
	c.close = func() { closeLocker(); _ = conn.Close() }
	return c, nil
}

// openMutex opens the Mutex of etcd's own client, with a new one for each acquisition. Each
// goroutine has a session, because two Mutexes of one session don't exclude each other, unless
// all share one.
func openMutex(share bool) func([]string) (*client, error) {
	return func(addrs []string) (*client, error) {
		conn, err := dialEtcd(addrs)
		if err != nil {
			return nil, err
		}
		var shared *concurrency.Session
		if share {
			if shared, err = newSession(conn); err != nil {
				return nil, err
			}
		}
		return &client{
			caller: func() caller { return &mutexCaller{conn: conn, session: shared} },
			close:  func() { _ = conn.Close() },
		}, nil
	}
}

func newSession(conn *clientv3.Client) (*concurrency.Session, error) {
	return concurrency.NewSession(conn, concurrency.WithTTL(int(sessionTTL.Seconds())))
}

type mutexCaller struct {
	conn    *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (c *mutexCaller) acquire(ctx context.Context, name string) (err error) {
	if c.session == nil {
		if c.session, err = newSession(c.conn); err != nil {
			return err
		}
	}
	c.mutex = concurrency.NewMutex(c.session, name)
	return c.mutex.Lock(ctx)
}

func (c *mutexCaller) release() error { return c.mutex.Unlock(context.Background()) }

// openGoZooKeeper opens the lock of the client library. It has a new Lock for each acquisition,
// because two goroutines can't share one, and that Lock does not look whether it is still held.
func openGoZooKeeper(addrs []string) (*client, error) {
	conn, events, err := zk.Connect(addrs, sessionTTL, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	return &client{caller: func() caller { return &goZooKeeperCaller{conn: conn} }, close: conn.Close}, nil
}

type goZooKeeperCaller struct {
	conn *zk.Conn
	lock *zk.Lock
}

// acquire ignores its context: the library has none.
func (c *goZooKeeperCaller) acquire(_ context.Context, name string) error {
	c.lock = zk.NewLock(c.conn, "/go/"+strings.ReplaceAll(name, "/", "-"), zk.WorldACL(zk.PermAll))
	return c.lock.Lock()
}

func (c *goZooKeeperCaller) release() error { return c.lock.Unlock() }
