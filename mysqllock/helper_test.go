package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/mysqllock"
)

// soonEnough is how long what comes at once, or with the next look, may take on a machine that is busy.
const soonEnough = 3 * time.Second

// open returns a driver that ends with the test.
func open(t testing.TB, db *sql.DB, opts ...mysqllock.Option) *mysqllock.Driver {
	t.Helper()
	return closed(t, mysqllock.New(db, opts...))
}

// openSession is open for sessions.
func openSession(t testing.TB, db *sql.DB, opts ...mysqllock.Option) *mysqllock.Driver {
	t.Helper()
	return closed(t, mysqllock.NewSession(db, opts...))
}

func closed(t testing.TB, d *mysqllock.Driver) *mysqllock.Driver {
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return d
}

// ask returns a request with a lease that outlives the test.
func ask(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: time.Minute}
}

// bounded returns a context for calls that must not take for ever.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("no answer for a long time"))
	t.Cleanup(cancel)
	return ctx
}

func acquire(t testing.TB, d driver.Driver, req driver.Request) driver.Lease {
	t.Helper()
	l, err := d.Acquire(bounded(t), req)
	if err != nil {
		t.Fatalf("Acquire of %q by %q = %v, want a lease", req.Name, req.Owner, err)
	}
	return l
}

func release(t testing.TB, l driver.Lease) {
	t.Helper()
	if err := l.Release(bounded(t)); err != nil {
		t.Fatalf("Release = %v, want nil", err)
	}
}

// try asks without waiting.
func try(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	return d.Acquire(bounded(t), req)
}

func mustBeHeld(t testing.TB, d driver.Driver, req driver.Request) {
	t.Helper()
	if _, err := try(t, d, req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire with NoWait of %q by %q = %v, want ErrHeld", req.Name, req.Owner, err)
	}
}

// must runs a statement.
func must(t testing.TB, db *sql.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(bounded(t), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// number reads one number.
func number(t testing.TB, db *sql.DB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(bounded(t), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}
