package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestBusyPool has the program use all connections of its pool that the driver leaves to it. No
// lock may be lost for that, also after the connection that the driver keeps was cut once.
func TestBusyPool(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxOpenConns(3)
	d := newDriver(t, db)
	l, waited := acquire(t, d, request("busy", "a")), acquire(t, d, request("waited for", "a"))
	program := []*sql.Tx{begin(t, db), begin(t, db)}
	var gaveUp atomic.Bool
	waiting := request("waited for", "b")
	waiting.OnWait = func(err error) { gaveUp.CompareAndSwap(false, err != nil) }
	waiter := livetest.Acquiring(t, d, waiting) // d knows that it is held, and only writes
	admin := dial(t, server.DSN())
	livetest.Await(t, "heartbeat", func() error {
		if number(t, admin, "SELECT count(*) FROM snib_locks WHERE name LIKE X'007025'") == 0 {
			return errors.New("the process has sent none")
		}
		return nil
	})
	if release(t, waited); gaveUp.Load() {
		t.Error("Release has waited for a request for the same lock, which waits for the pool")
	}
	for range 3 {
		if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew = %v", err)
		}
	}
	req := request("other", "a")
	req.NoWait = true
	for _, d := range []driver.Driver{d, newDriver(t, db)} {
		// The answer comes before our own deadline, which may be late on a busy machine.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := d.Acquire(ctx, req); !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrUnavailable) ||
			!strings.Contains(err.Error(), "pool") {
			t.Errorf("Acquire beside a busy pool = %v, want ErrFull that names the pool", err)
		}
	}
	release(t, l)
	for _, tx := range program {
		_ = tx.Rollback()
	}
	release(t, waiter.Get(t))
}

// TestConnections has many callers change rows at once. They share few connections.
func TestConnections(t *testing.T) {
	t.Parallel()
	proxy := livetest.NewProxy(t, database(t).Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxIdleConns(100) // so that each one stays open
	d := newDriver(t, db)
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
	if n := db.Stats().OpenConnections; n > 9 {
		t.Errorf("40 callers used %d connections, want 8, and the spare", n)
	}
}

// TestSpareServesRequests has a driver acquire and release while its server has no connection left
// but the spare. Otherwise processes that have one spare each would wait for one another for good.
func TestSpareServesRequests(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=10")
	db := dial(t, server.DSN())
	db.SetMaxIdleConns(-1) // so that only the spare stays
	d := newDriver(t, db)
	release(t, acquire(t, d, request("full", "a")))
	others := dial(t, server.DSN())
	for err := error(nil); err == nil; {
		_, err = others.Conn(t.Context()) // it stays open
	}
	release(t, acquire(t, d, request("full", "b")))
}

// TestSpareIsReplaced cuts the connection that the driver keeps.
func TestSpareIsReplaced(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxOpenConns(3)
	d := newDriver(t, db)
	l := acquire(t, d, request("cut", "a"))
	proxy.Cut()
	if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew after a cut = %v", err)
	}
	for range 2 {
		begin(t, db)
	}
	release(t, l)
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if n := db.Stats().InUse; n != 2 {
		t.Errorf("%d connections are in use after Close, want the 2 of the program", n)
	}
}
