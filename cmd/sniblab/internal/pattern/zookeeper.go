package pattern

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/zklock"
)

// Patterns with ZooKeeper, and a stock in a file. The TTL is the timeout of the session.
const (
	Ephemeral    Name = "an ephemeral sequential node"
	Unwatched    Name = "an ephemeral node, and no look at the session"
	FencedInFile Name = "snib with ZooKeeper, and a guard"
)

// lockNode is the folder of the lock: snib's own, where locks of go-zookeeper are seen, too.
const lockNode = "/snib/" + LockName

// ephemeral is the lock of go-zookeeper: each client makes an ephemeral sequential node, and the
// smallest number holds the lock. The client does not look at what becomes of its session.
func ephemeral(_ context.Context, s Spec, t Tracer) (*Client, error) {
	conn, _, err := zk.Connect(s.URLs, s.TTL, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	lock := zk.NewLock(conn, lockNode, zk.WorldACL(zk.PermAll))
	c := &Client{
		Wait: func(context.Context) error {
			const call = "zk: Lock " + lockNode
			t.Before(call)
			if err := lock.LockWithData([]byte(s.Client)); err != nil {
				t.Lost(err.Error()) // such as the session, on a machine that is very busy
				return err
			}
			t.After(call, "ok")
			return nil
		},
		Release: func(context.Context) error {
			const call = "zk: Unlock " + lockNode
			t.Before(call)
			if err := lock.Unlock(); err != nil {
				t.After(call, err.Error()) // its node is gone with its session, or will be
				return nil
			}
			t.After(call, "ok")
			return nil
		},
		Close: conn.Close,
	}
	c.workOnFile(s.Stock, t)
	return c, nil
}

// A silent is a logger of go-zookeeper that keeps it from writing on the screen.
type silent struct{}

func (silent) Printf(string, ...any) {}

// workOnFile makes the client work on the stock in a file, which nothing guards.
func (c *Client) workOnFile(path string, t Tracer) {
	c.Read = func(context.Context) (int, error) {
		const call = "read " + StockName
		t.Before(call)
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		t.After(call, string(data))
		return strconv.Atoi(string(data))
	}
	c.Write = func(_ context.Context, stock int) error {
		text := strconv.Itoa(stock)
		call := "write " + StockName + " " + text
		t.Before(call)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		t.After(call, "OK")
		return nil
	}
}

// fencedInFile is snib with ZooKeeper, and a guard at the stock.
func fencedInFile(_ context.Context, s Spec, t Tracer) (*Client, error) {
	driver, err := zklock.New(s.URLs, zklock.Timeout(s.TTL))
	if err != nil {
		return nil, err
	}
	l, err := newSnibClient(driver, LockName, s, t)
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	c := l.client()
	c.Try = nil // unlike Wait, it fails if the session ends meanwhile
	c.Close = func() { _ = driver.Close() }
	c.workThrough(fileGuard(s.Stock), l)
	return c, nil
}

// A zooKeeperClient locks by nodes.
type zooKeeperClient struct {
	Spec
	trace Tracer
	conn  *zk.Conn
}

// onZooKeeper returns a function that opens clients of a pattern that has no stock.
func onZooKeeper(pattern func(*zooKeeperClient) (*Client, error)) func(context.Context, Spec, Tracer) (*Client, error) {
	return func(_ context.Context, s Spec, t Tracer) (*Client, error) {
		conn, _, err := zk.Connect(s.URLs, s.TTL, zk.WithLogger(silent{}))
		if err != nil {
			return nil, err
		}
		c, err := pattern(&zooKeeperClient{Spec: s, trace: t, conn: conn})
		if err != nil {
			conn.Close()
			return nil, err
		}
		c.Close = conn.Close
		return c, nil
	}
}

// path returns the node of the lock.
func (z *zooKeeperClient) path() string { return "/" + cmp.Or(z.Lock, LockName) }

// unwatched takes the lock by an ephemeral node. It asks nobody whether its session, and with it
// the node, still exists.
func unwatched(z *zooKeeperClient) (*Client, error) {
	return &Client{
		Try: func(context.Context) (bool, error) {
			call := "create " + z.path()
			z.trace.Before(call)
			_, err := z.conn.Create(z.path(), []byte(z.Client), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNodeExists) {
				z.trace.After(call, "it exists")
				return false, nil
			}
			if err == nil {
				z.trace.After(call, "ok")
			}
			return err == nil, err
		},
		Release: func(context.Context) error {
			holder, _, err := z.conn.Get(z.path())
			if errors.Is(err, zk.ErrNoNode) || err == nil && string(holder) != z.Client {
				return nil // its node is gone with its session
			}
			if err != nil {
				return err
			}
			return z.conn.Delete(z.path(), -1)
		},
	}, nil
}
