package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
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
	w := livetest.Acquiring(t, d, request("free", "a"))
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
