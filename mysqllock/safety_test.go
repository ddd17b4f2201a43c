package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// A release that the server did not answer in time is completed when the server answers again.
func releaseOnHungServer(t *testing.T, server *mysqltest.Server) {
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
	l := acquire(t, d, request("hung release", "a"))
	server.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 1100*time.Millisecond)
	defer cancel()
	err := l.Release(ctx)
	server.Resume()
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled) {
		t.Errorf("Release on a server that hangs = %v, want ErrUnavailable and nothing of a cancellation", err)
	}
	release(t, acquire(t, other, request("hung release", "b")))
}

// While the server hangs, a caller's deadline is kept, a call without one fails after a bounded
// time, and Close returns.
func hungServer(t *testing.T, server *mysqltest.Server) {
	d := newDriver(t, dial(t, server.DSN()))
	held := acquire(t, d, request("hung", "a"))
	for i := range 5 {
		acquire(t, d, request(fmt.Sprint("hung ", i), "a")) // Close has to release these too
	}
	server.Hang()
	defer server.Resume()
	slack := livetest.Slack(t)
	for _, noWait := range []bool{false, true} {
		req := request("hung too", "a")
		req.NoWait = noWait
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		began := time.Now()
		_, err := d.Acquire(ctx, req)
		if took := time.Since(began); took > 400*time.Millisecond+driver.CancelTimeout+soonEnough/6+slack() {
			t.Errorf("Acquire returned after %v, want 400ms", took)
		}
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire on a server that hangs = %v, want ErrUnavailable and the end of the context", err)
		}
		cancel()
	}
	began := time.Now()
	_, err := tryAcquire(t, d, request("hung too", "a"))
	if took := time.Since(began); !errors.Is(err, driver.ErrUnavailable) ||
		took > driver.AnswerTimeout+soonEnough+slack() {
		t.Errorf("Acquire with NoWait on a server that hangs = %v after %v, want ErrUnavailable after %v", err, took,
			driver.AnswerTimeout)
	}
	began = time.Now()
	if err := d.Close(); err != nil || time.Since(began) > 2*time.Second+soonEnough+slack() {
		t.Errorf("Close on a server that hangs = %v after %v", err, time.Since(began))
	}
	t.Logf("Close took %v", time.Since(began))
	if err := held.Release(testContext(t)); err == nil {
		t.Error("Release on a server that hangs, of a driver that is closed = nil")
	}
}

func TestHungServer(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	t.Run("Rows", func(t *testing.T) { hungServer(t, server) })
	t.Run("Release", func(t *testing.T) { releaseOnHungServer(t, server) })
}

// Hundreds of waiters in one process leave connections to other processes, and all get their
// locks.
func TestHerd(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=60")
	const herd = 400
	t.Run("Rows", func(t *testing.T) {
		holder, d := newDriver(t, dial(t, server.DSN())), newDriver(t, dial(t, server.DSN()))
		var leases []driver.Lease
		for i := range herd {
			leases = append(leases, acquire(t, holder, request(fmt.Sprint("herd ", i), "a")))
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Minute, errors.New("the herd takes too long"))
		defer cancel()
		var all sync.WaitGroup
		var failed sync.Map
		for i := range herd {
			all.Go(func() {
				l, err := d.Acquire(ctx, request(fmt.Sprint("herd ", i), "b"))
				if err == nil {
					err = l.Release(ctx)
				}
				if err != nil {
					failed.Store(i, err)
				}
			})
		}
		livetest.Await(t, "herd that waits", func() error {
			waiting := 0
			err := holder.List(testContext(t), "herd ", func(st driver.Status) bool { waiting += len(st.Waiters); return true })
			if err == nil && waiting < herd {
				err = fmt.Errorf("%d wait", waiting)
			}
			return err
		})
		for i, r := range holder.Renew(testContext(t), leases) {
			if r.Err != nil {
				t.Fatalf("Renew of lease %d of another process = %v", i, r.Err)
			}
		}
		// One by one: 400 at once may take longer than an answer may.
		for _, l := range leases {
			if err := l.Release(ctx); err != nil {
				t.Errorf("Release = %v", err)
			}
		}
		all.Wait()
		failed.Range(func(i, err any) bool { t.Errorf("waiter %v: %v", i, err); return true })
		const refused = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = " +
			"'CONNECTION_ERRORS_MAX_CONNECTIONS'"
		if n := number(t, dial(t, server.DSN()), refused); n > 0 {
			t.Errorf("the server refused %d connections, because it had too many", n)
		}
	})
	t.Run("Full", func(t *testing.T) { // the server has no connection left
		server := mysqltest.Start(t, "max-connections=10")
		hog := dial(t, server.DSN())
		var conns []*sql.Conn
		for {
			conn, err := hog.Conn(testContext(t))
			if err != nil {
				break
			}
			conns = append(conns, conn)
		}
		d := newDriver(t, dial(t, server.DSN()))
		if _, err := tryAcquire(t, d, request("full", "a")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire with NoWait = %v, want ErrUnavailable", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := d.Acquire(ctx, request("full", "a")); !errors.Is(err, driver.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want ErrUnavailable and the end of its context", err)
		}
		w := jobtest.Acquiring(t, d, request("full", "b"))
		time.Sleep(300 * time.Millisecond) // it retries in vain meanwhile
		w.Running(t, "although there is no connection left")
		for _, conn := range conns {
			_ = conn.Raw(func(any) error { return errors.New("done") })
			_ = conn.Close()
		}
		_ = hog.Close()
		release(t, w.Get(t))
	})
}

// A hold that ended only in the process lasts in the store for its TTL.
func TestLapse(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	jobtest.Lapse(t, func() driver.Driver { return newDriver(t, dial(t, server.DSN())) })
}

func TestStaleHandOver(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	open := func() driver.Driver { return newDriver(t, dial(t, server.DSN())) }
	t.Run("Broken", func(t *testing.T) {
		jobtest.StaleHandOver(t, open, func(name, id string) {
			if err := newDriver(t, dial(t, server.DSN())).Break(testContext(t), name, id); err != nil {
				t.Fatalf("Break = %v", err)
			}
		})
	})
	t.Run("RowsEmptied", func(t *testing.T) { // nobody tells the holder
		admin := dial(t, server.DSN())
		jobtest.StaleHandOver(t, open, func(name, _ string) {
			must(t, admin, "UPDATE snib_locks SET version = version + 1, ends = 0 WHERE name = ?", []byte(name))
		})
	})
}

// Dead connections of the pool cause no errors.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	t.Run("Rows", func(t *testing.T) {
		proxy := livetest.NewProxy(t, server.Addr())
		// Without checkConnLiveness the pool notices late that a connection is dead.
		db := dial(t, mysqltest.DSN(proxy.Addr(), "checkConnLiveness=false"))
		db.SetMaxIdleConns(8)
		d := newDriver(t, db)
		for round := range 10 {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					req := request(fmt.Sprint("stale ", i), fmt.Sprint(round))
					req.NoWait = true
					l, err := d.Acquire(testContext(t), req)
					if err == nil {
						err = l.Release(testContext(t))
					}
					if err != nil {
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			all.Wait()
			if round%2 == 0 {
				proxy.Cut()
			} else {
				killAll(t, admin)
			}
		}
	})
}

// The statements in the documentation grant enough rights. Accounts that may do nothing, or only
// read, can do what the documentation says.
func TestPermissions(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	must(t, admin, "CREATE DATABASE app")
	text, err := mysqllock.Schema("app.snib_locks")
	if err != nil {
		t.Fatal(err)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(text), ";\n") {
		must(t, admin, statement)
	}
	page, err := os.ReadFile("../docs/backends/mysqllock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	for statement := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
		must(t, admin, statement)
	}
	as := func(account, database string) *sql.DB {
		return dial(t, account+":change-me@tcp("+server.Addr()+")/"+database)
	}
	d := newDriver(t, as("locker", "app"))
	w := jobtest.Acquiring(t, d, request("free", "a"))
	release(t, w.Get(t))
	reading := as("reader", "app")
	l := acquire(t, d, request("seen", "a"))
	reader := newDriver(t, reading)
	if st, err := reader.Status(testContext(t), "seen"); err != nil || len(st.Holders) != 1 {
		t.Errorf("Status for a user who may only read = %+v, %v", st, err)
	}
	if _, err := tryAcquire(t, reader, request("mine", "a")); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire by a user who may only read = %v, want an error that stays", err)
	}
	tx, err := reading.BeginTx(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(testContext(t),
		"SELECT * FROM snib_locks WHERE name = 'seen' LOCK IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Renew(ctx, []driver.Lease{l})[0].Err; !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Renew while who may only read keeps the row = %v, want ErrUnavailable", err)
	}
}
