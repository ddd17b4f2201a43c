package goredis

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// masterCheckInterval is how often a driver asks the Sentinels for the master.
const masterCheckInterval = 10 * time.Second

// masterCheckTimeout is long enough for go-redis to give up a Sentinel that hangs, and to ask the
// others.
const masterCheckTimeout = time.Minute

// A masterDialer makes the connections of a driver behind Sentinel, and closes those that lead to
// an old master: one that is cut off from the Sentinels may still answer, and go-redis closes the
// connections of the program's own client only. If no Sentinel answers, all stay open.
type masterDialer struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error) // asks the Sentinels

	mu    sync.Mutex
	conns map[*masterConn]bool // that are open
}

// A masterConn is a connection that its dialer knows while it is open.
type masterConn struct {
	net.Conn
	dialer *masterDialer
}

// Close implements [net.Conn].
func (c *masterConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

func (d *masterDialer) dialMaster(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &masterConn{raw, d}
	d.mu.Lock()
	d.conns[c] = true
	d.mu.Unlock()
	if s, ok := raw.(syscall.Conn); ok { // go-redis looks there whether a connection was closed
		return struct {
			*masterConn
			syscall.Conn
		}{c, s}, nil
	}
	return c, nil
}

// checkMaster closes the connections that lead elsewhere than a new one does, again and again until
// ctx is done.
func (d *masterDialer) checkMaster(ctx context.Context, network, addr string) {
	for ctx.Err() == nil {
		select {
		case <-time.After(masterCheckInterval):
		case <-ctx.Done():
		}
		dialCtx, cancel := context.WithTimeout(ctx, masterCheckTimeout)
		master, err := d.dial(dialCtx, network, addr)
		cancel()
		if err != nil {
			continue
		}
		d.mu.Lock()
		open := slices.Collect(maps.Keys(d.conns))
		d.mu.Unlock()
		for _, c := range open {
			if c.RemoteAddr().String() != master.RemoteAddr().String() {
				_ = c.Close() // the client dials anew
			}
		}
		_ = master.Close() // nothing was sent
	}
}
