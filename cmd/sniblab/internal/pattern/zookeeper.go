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

// unwatched takes the lock by an ephemeral node. It asks nobody whether its session, and with it
// the node, still exists.
func unwatched(_ context.Context, s Spec, _ Tracer) (*Client, error) {
	conn, _, err := zk.Connect(s.URLs, s.TTL, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	path := "/" + cmp.Or(s.Lock, LockName)
	return &Client{
		Try: func(context.Context) (bool, error) {
			_, err := conn.Create(path, []byte(s.Client), zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			if errors.Is(err, zk.ErrNodeExists) {
				return false, nil
			}
			return err == nil, err
		},
		Release: func(context.Context) error {
			holder, _, err := conn.Get(path)
			if errors.Is(err, zk.ErrNoNode) || err == nil && string(holder) != s.Client {
				return nil // its node is gone with its session
			}
			if err != nil {
				return err
			}
			return conn.Delete(path, -1)
		},
		Close: conn.Close,
	}, nil
}
