package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
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

// TestSpareIsAwaited has two holders release on a server that has no connection left but the spare.
// One of them waits for a locked row, and the other one for the spare, or for a free connection.
func TestSpareIsAwaited(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=10")
	db := dial(t, server.DSN())
	db.SetMaxIdleConns(-1) // so that only the spare stays
	d := newDriver(t, db)
	release(t, acquire(t, d, request("first", "a")))
	locker, status, others := dial(t, server.DSN()), dial(t, server.DSN()), dial(t, server.DSN())
	others.SetMaxIdleConns(-1)
	for _, db := range []*sql.DB{locker, status} {
		db.SetMaxOpenConns(1)
		if err := db.Ping(); err != nil {
			t.Fatal(err)
		}
	}
	var last *sql.Conn
	try := func(name string, isFreed bool) error {
		first, second := acquire(t, d, request("locked "+name, "a")), acquire(t, d, request("waiting "+name, "a"))
		unlock := lockRow(t, locker, "locked "+name)
		for conn, err := others.Conn(t.Context()); err == nil; conn, err = others.Conn(t.Context()) {
			last = conn // it stays open
		}
		ended, waited := make(chan error, 1), make(chan error, 1)
		go func() { ended <- first.Release(t.Context()) }()
		awaitStatus(t, status, "INNODB_ROW_LOCK_CURRENT_WAITS")
		if _, err := status.ExecContext(t.Context(), "FLUSH STATUS"); err != nil {
			t.Fatal(err)
		}
		go func() { waited <- second.Release(t.Context()) }()
		awaitStatus(t, status, "CONNECTION_ERRORS_MAX_CONNECTIONS")
		if isFreed {
			_ = last.Close()
		} else {
			unlock()
		}
		err := <-waited
		unlock()
		<-ended
		return err
	}
	for _, isFreed := range []bool{false, true} {
		err := errors.New("")
		for round := 0; err != nil && round < 3; round++ { // a busy machine may need longer than a release waits
			err = try(fmt.Sprint(isFreed, round), isFreed)
		}
		if err != nil {
			t.Errorf("Release that waits for a connection, another one is freed: %v, = %v", isFreed, err)
		}
	}
}

// awaitStatus waits until a variable of the server's status is not zero.
func awaitStatus(t *testing.T, db *sql.DB, variable string) {
	t.Helper()
	livetest.Await(t, variable, func() error {
		const status = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?"
		if number(t, db, status, variable) == 0 {
			return errors.New("zero")
		}
		return nil
	})
}

// TestPollsBesideBusyPool has the program use its whole pool while a caller waits in the queue. The
// polls go on, and so do the heartbeats that keep its place.
func TestPollsBesideBusyPool(t *testing.T) {
	t.Parallel()
	server := database(t)
	db := dial(t, server.DSN())
	db.SetMaxOpenConns(2) // the spare, and one for the program
	d, other := newDriver(t, db), newDriver(t, dial(t, server.DSN()))
	l := acquire(t, other, request("polled", "a"))
	polls, req := make(chan error), request("polled", "b")
	req.OnWait = func(err error) {
		select {
		case polls <- err:
		default:
		}
	}
	w := livetest.Waiting(t, d, req)
	tx := begin(t, db)
	overdue := time.After(livetest.Patience)
	for succeeded := 0; succeeded < 20; succeeded++ { // longer than the pause between two heartbeats
		select {
		case err := <-polls:
			if err != nil { // it had begun before, or the machine is busy
				succeeded = -1
			}
		case <-overdue:
			t.Fatal("polls beside a busy pool fail")
		}
	}
	_ = tx.Rollback()
	release(t, l)
	release(t, w.Get(t))
}

// TestHungServerIsNoFullPool has a server hang while requests use the whole pool. That is an
// outage: of a full pool, waiters would never tire.
func TestHungServerIsNoFullPool(t *testing.T) {
	t.Parallel()
	proxy := livetest.NewProxy(t, database(t).Addr())
	db := dial(t, mysqltest.DSN(proxy.Addr()))
	db.SetMaxOpenConns(2)
	d := newDriver(t, db)
	defer proxy.Stall()()
	if _, err := tryAcquire(t, d, request("hung", "a")); !errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, driver.ErrFull) {
		t.Errorf("Acquire on a server that hangs = %v, want ErrUnavailable without ErrFull", err)
	}
	for range 2 {
		go db.Conn(t.Context())
	}
	livetest.Await(t, "full pool", func() error {
		if n := db.Stats().InUse; n < 2 {
			return fmt.Errorf("%d connections are in use", n)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := d.Acquire(ctx, request("hung", "b")); !errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, driver.ErrFull) {
		t.Errorf("Acquire on a server that hangs, beside a full pool = %v, want ErrUnavailable without ErrFull", err)
	}
}

// TestClosedByProxy has a proxy accept connections and close them. A request soon gives up.
func TestClosedByProxy(t *testing.T) {
	t.Parallel()
	proxy := livetest.NewProxy(t, database(t).Addr())
	d := newDriver(t, dial(t, mysqltest.DSN(proxy.Addr())))
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
