package mysqllock_test

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// TestConnections has many callers change rows at once. They share few connections.
func TestConnections(t *testing.T) {
	t.Parallel()
	proxy := livetest.NewProxy(t, database(t).Addr())
	d := newDriver(t, mysqltest.DSN(proxy.Addr()))
	release(t, acquire(t, d, request("connections", "a")))
	proxy.Delay(20*time.Millisecond, 0)
	var callers sync.WaitGroup
	for i := range 40 {
		callers.Go(func() {
			if _, err := d.Token(testContext(t), fmt.Sprint("connections ", i)); err != nil {
				t.Errorf("Token = %v", err)
			}
		})
	}
	callers.Wait()
	if n := mysqllock.Pool(d).Stats().OpenConnections; n > 8 {
		t.Errorf("40 callers used %d connections, want 8", n)
	}
	if d.Close(); mysqllock.Pool(d).Stats().OpenConnections > 0 {
		t.Error("connections are open after Close")
	}
}

// TestIdleConnectionsLost has all connections of a pool die unnoticed, as when a NAT forgets them.
// The first request that gets no answer drops them all, so that the next gets a new one.
func TestIdleConnectionsLost(t *testing.T) {
	t.Parallel()
	server := database(t)
	for name, send := range map[string]func(d *mysqllock.Driver, l driver.Lease, try int) error{
		"Renew": func(d *mysqllock.Driver, l driver.Lease, _ int) error {
			return d.Renew(testContext(t), []driver.Lease{l})[0].Err
		},
		"Acquire": func(d *mysqllock.Driver, _ driver.Lease, try int) error {
			_, err := tryAcquire(t, d, request("another", fmt.Sprint(try)))
			return err
		},
		"Release": func(_ *mysqllock.Driver, l driver.Lease, _ int) error { return l.Release(testContext(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := livetest.NewProxy(t, server.Addr())
			d := newDriver(t, mysqltest.DSN(proxy.Addr()))
			l := acquire(t, d, driver.Request{Name: name, ID: "a", TTL: time.Hour})
			fillPool(t, mysqllock.Pool(d), 26)
			proxy.StallConnected()
			tries := 0
			livetest.Await(t, name+" over a new connection", func() error {
				tries++
				return send(d, l, tries)
			})
			if tries > 8 {
				t.Errorf("%s took %d tries, want 2", name, tries)
			}
			proxy.Heal()
		})
	}
}

// TestCloseAwaitsRelease closes a driver while a release is between two of its statements, because
// the row was changed.
func TestCloseAwaitsRelease(t *testing.T) {
	t.Parallel()
	dsn := database(t).DSN()
	admin := dial(t, dsn)
	var releasing atomic.Bool
	reached, proceed := make(chan struct{}), make(chan struct{})
	d := hooked(t, dsn, func(_ string, exec execFunc) (sqldriver.Result, error) {
		if releasing.CompareAndSwap(true, false) {
			must(t, admin, "UPDATE snib_locks SET version = version + 1 WHERE name = 'closing'")
			close(reached)
			<-proceed
		}
		return exec()
	})
	l := acquire(t, d, request("closing", "a"))
	releasing.Store(true)
	released := make(chan error, 1)
	go func() { released <- l.Release(context.Background()) }()
	<-reached
	closing := time.Now()
	go d.Close()
	livetest.Await(t, "driver that is closed", func() error {
		if _, err := tryAcquire(t, d, request("other", "a")); !errors.Is(err, driver.ErrClosed) {
			return fmt.Errorf("Acquire = %w", err)
		}
		return nil
	})
	time.Sleep(50 * time.Millisecond) // in which Close would close the pool
	close(proceed)
	if err := <-released; err != nil && time.Since(closing) < driverkit.CleanupTimeout {
		t.Errorf("Release while the driver is closed = %v", err)
	}
}

// TestClosedByProxy has a proxy accept connections and close them. A request soon gives up.
func TestClosedByProxy(t *testing.T) {
	t.Parallel()
	proxy := livetest.NewProxy(t, database(t).Addr())
	d := newDriver(t, mysqltest.DSN(proxy.Addr()))
	release(t, acquire(t, d, request("closed", "a")))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var accepted atomic.Int32
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			accepted.Add(1)
			conn.Close()
		}
	}()
	proxy.Redirect(listener.Addr().String())
	proxy.Cut()
	_, err = tryAcquire(t, d, request("closed", "a"))
	if n := accepted.Load(); !errors.Is(err, driver.ErrUnavailable) || n > 9 {
		t.Errorf("Acquire = %v after %d connections, want ErrUnavailable after a few", err, n)
	}
}
