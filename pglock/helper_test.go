package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

// longTTL is the TTL of a lease that outlives a test.
const longTTL = time.Minute

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: longTTL}
}

// noWait returns a request that does not wait.
func noWait(name, id string) driver.Request {
	req := request(name, id)
	req.NoWait = true
	return req
}

func openRows(t testing.TB, pool *pgxpool.Pool) driver.Driver { return newDriver(t, pool) }

func openSession(t testing.TB, pool *pgxpool.Pool) driver.Driver { return newSession(t, pool) }

func newDriver(t testing.TB, pool *pgxpool.Pool, opts ...pglock.Option) *pglock.Driver {
	t.Helper()
	d, err := pglock.New(pool, opts...)
	if err != nil {
		t.Fatalf("New = %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func newSession(t testing.TB, pool *pgxpool.Pool, opts ...pglock.Option) *pglock.Session {
	t.Helper()
	d, err := pglock.NewSession(pool, opts...)
	if err != nil {
		t.Fatalf("NewSession = %v", err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// lockTable returns a table of locks.
func lockTable(t testing.TB, server *pgtest.Server, pool *pgxpool.Pool, name string) rowstest.Table {
	return rowstest.Table{
		Name:   name,
		Open:   func() rowstest.Driver { return newDriver(t, dial(t, server.URL()), pglock.Table(name)) },
		Exec:   func(sql string) { t.Helper(); must(t, pool, sql) },
		Number: func(sql string) int64 { t.Helper(); return query[int64](t, pool, sql) },
	}
}

// dialWith is dial with a changed configuration.
func dialWith(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	change(conf)
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// settings returns a change of the configuration that sets defaults of the user's sessions.
func settings(pairs ...string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		for i := 0; i < len(pairs); i += 2 {
			c.ConnConfig.RuntimeParams[pairs[i]] = pairs[i+1]
		}
	}
}

// The functions that all tests of backends share.
var (
	acquire    = livetest.Acquire
	release    = livetest.Release
	mustBeHeld = livetest.CheckHeld
)

// A persistent driver sends a request again, as [acquire] does, that has had no answer in time.
type persistent struct{ driver.Driver }

func (p persistent) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	id, began := req.ID, time.Now()
	for try := 2; ; try++ {
		l, err := p.Driver.Acquire(ctx, req)
		if !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil || time.Since(began) > livetest.Patience {
			return l, err
		}
		time.Sleep(10 * time.Millisecond)
		req.ID = fmt.Sprint(id, "-", try) // no two calls may have the same id
	}
}

// awaitFree waits until a lock can be acquired, and releases it again.
func awaitFree(t testing.TB, d driver.Driver, name string) {
	t.Helper()
	livetest.Await(t, "lock that is free", func() error {
		l, err := d.Acquire(t.Context(), noWait(name, "a stranger"))
		if err == nil {
			err = l.Release(t.Context())
		}
		return err
	})
}

func must(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// query returns the single value of a query.
func query[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// A counter counts the statements of a pool, and of the connections that are configured like the
// pool's.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

// rate returns how many statements a second are sent, as it counts them for a time.
func (c *counter) rate(during time.Duration) float64 {
	before, began := c.n.Load(), time.Now()
	time.Sleep(during) // the measured time, which is longer on a busy machine
	return float64(c.n.Load()-before) / time.Since(began).Seconds()
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
