package golang

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// openZooKeeper has the Lock of go-zookeeper. Its wait can't be cancelled, so a connection whose
// wait is over is closed, which ends its place in the queue.
func openZooKeeper(_ context.Context, m target.Message) (target.Locker, error) {
	c := &zkConnection{addr: strings.TrimPrefix(m.URL, "zk://"), timeout: ttl(m)}
	if _, err := c.get(); err != nil {
		return nil, err
	}
	return func(_ context.Context, wait time.Duration) (*target.Hold, error) {
		conn, err := c.get()
		if err != nil {
			return nil, err
		}
		lock := zk.NewLock(conn, "/"+m.Name, zk.WorldACL(zk.PermAll))
		done := make(chan error, 1)
		go func() { done <- lock.Lock() }()
		select {
		case err = <-done:
		case <-time.After(wait):
			c.close()
			return nil, target.ErrDenied
		}
		if err != nil {
			c.close()
			return nil, err
		}
		session := conn.SessionID()
		return &target.Hold{
			Held:    func() bool { return conn.State() == zk.StateHasSession && conn.SessionID() == session },
			Release: func(context.Context) error { return lock.Unlock() },
		}, nil
	}, nil
}

// A zkConnection is the connection of a process, which it replaces after a failure.
type zkConnection struct {
	addr    string
	timeout time.Duration

	mu   sync.Mutex
	conn *zk.Conn
}

func (c *zkConnection) get() (*zk.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return c.conn, nil
	}
	conn, _, err := zk.Connect([]string{c.addr}, c.timeout, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return conn, nil
}

func (c *zkConnection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// silent is a [zk.Logger] that logs nothing.
type silent struct{}

// Printf implements [zk.Logger].
func (silent) Printf(string, ...any) {}
