package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/mysqllock"
)

// soonEnough is how long something that happens at once, or with the next poll, may take on a
// busy machine.
const soonEnough = 3 * time.Second

// newDriver returns a driver that is closed at the end of the test.
func newDriver(t testing.TB, dsn string, opts ...mysqllock.Option) *mysqllock.Driver {
	t.Helper()
	conf, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	d, err := mysqllock.New(conf, opts...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	return closeAtEnd(t, d)
}

// lockTable returns a table of locks.
func lockTable(t testing.TB, server *mysqltest.Server, name string) rowstest.Table {
	db := dial(t, server.DSN())
	return rowstest.Table{
		Name:   name,
		Open:   func() rowstest.Driver { return newDriver(t, server.DSN(), mysqllock.Table(name)) },
		Exec:   func(sql string) { t.Helper(); must(t, db, sql) },
		Number: func(sql string) int64 { t.Helper(); return number(t, db, sql) },
	}
}

func closeAtEnd(t testing.TB, d *mysqllock.Driver) *mysqllock.Driver {
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
	return d
}

// request returns a request for a lease that outlives the test.
func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

// testContext returns a context for calls that must not take for ever.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Second, errors.New("no answer for a long time"))
	t.Cleanup(cancel)
	return ctx
}

// The functions that all tests of backends share.
var (
	acquire = livetest.Acquire
	release = livetest.Release
)

// tryAcquire calls Acquire without waiting.
func tryAcquire(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	return d.Acquire(testContext(t), req)
}

func mustBeHeld(t testing.TB, d driver.Driver, req driver.Request) {
	t.Helper()
	if _, err := tryAcquire(t, d, req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire with NoWait of %q by %q = %v, want ErrHeld", req.Name, req.ID, err)
	}
}

// must runs a statement.
func must(t testing.TB, db *sql.DB, sql string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(testContext(t), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// number returns the single number of a query.
func number(t testing.TB, db *sql.DB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(testContext(t), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}
