package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
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
	l := acquire(t, d, request("busy", "a"))
	waiter := livetest.Waiting(t, d, request("busy", "b"))
	var program [2]*sql.Conn
	for i := range program {
		conn, err := db.Conn(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		program[i] = conn
	}
	for range 3 {
		if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
			t.Errorf("Renew = %v", err)
		}
	}
	// The answer comes before our own deadline, which may be late on a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req := request("other", "a")
	req.NoWait = true
	if _, err := d.Acquire(ctx, req); !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrUnavailable) ||
		!strings.Contains(err.Error(), "pool") {
		t.Errorf("Acquire beside a busy pool = %v, want ErrFull that names the pool", err)
	}
	release(t, l)
	for _, conn := range program {
		conn.Close()
	}
	release(t, waiter.Get(t))
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
		conn, err := db.Conn(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	release(t, l)
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if n := db.Stats().InUse; n != 2 {
		t.Errorf("%d connections are in use after Close, want the 2 of the program", n)
	}
}
