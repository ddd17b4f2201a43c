package pattern

import (
	"cmp"
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// Unwatched is the pattern with ZooKeeper. The TTL is the timeout of the session.
const Unwatched Name = "an ephemeral node, and no look at the session"

// A silent is a logger of go-zookeeper that keeps it from writing on the screen.
type silent struct{}

func (silent) Printf(string, ...any) {}

// A zooKeeperClient locks by nodes.
type zooKeeperClient struct {
	Spec
	trace Tracer
	conn  *zk.Conn
}

// onZooKeeper returns a function that opens clients of a pattern.
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
