package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// Connections that died in silence leave a holder's renewals those that still can be made.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	d := newDriver(t, dialWith(t, pgtest.URL(proxy.Addr()), func(c *pgxpool.Config) { c.MaxConns = 4 }))
	l := acquire(t, d, request("x", "o"))
	openConns(t, d.Pool(), 4)
	time.Sleep(1500 * time.Millisecond) // the pool of pgx takes them for old then
	proxy.StallConnected()
	for i := range 3 {
		livetest.Acquiring(t, d, request(fmt.Sprint("another ", i), "o"))
	}
	livetest.Await(t, "renewal", func() error { return d.Renew(t.Context(), []driver.Lease{l})[0].Err })
}

// openConns opens all connections of a pool.
func openConns(t *testing.T, pool *pgxpool.Pool, n int) {
	t.Helper()
	var all []*pgxpool.Conn
	for range n {
		livetest.Await(t, "connection", func() error {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				return err
			}
			if err := conn.Ping(t.Context()); err != nil {
				conn.Release()
				return err
			}
			all = append(all, conn)
			return nil
		})
	}
	for _, conn := range all {
		conn.Release()
	}
}

// TestUnavailable checks that transient errors, and no permanent ones, match ErrUnavailable.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "max_connections=8")
	proxy := livetest.NewProxy(t, server.Addr())
	pooled := pgtest.Start(t)
	pooler, statements := pgtest.Pool(t, pooled, "transaction"), pgtest.Pool(t, pooled, "statement")
	release(t, acquire(t, newDriver(t, dial(t, pooled.URL())), request("first", "a"))) // the table exists
	gone := pgtest.URL(fmt.Sprint("127.0.0.1:", livetest.FreePort(t)))
	same := func(*pgxpool.Config) {}
	tests := []struct {
		name   string
		url    string
		change func(*pgxpool.Config)
		before func(*testing.T)
		want   bool // ErrUnavailable

		invalid bool // ErrInvalid: another configuration is needed
	}{
		{name: "Refused", url: gone, change: same, want: true},
		{name: "Silent", url: pgtest.URL(proxy.Addr()), change: same, want: true, before: func(t *testing.T) { t.Cleanup(proxy.Sever()) }},
		{name: "SlowToConnect", url: pgtest.URL(proxy.Addr()), change: func(c *pgxpool.Config) { c.ConnConfig.ConnectTimeout = 200 * time.Millisecond },
			want: true, before: func(t *testing.T) { t.Cleanup(proxy.Sever()) }},
		{name: "UnknownHost", url: pgtest.URL("there-is-none.invalid:5432"), change: same},
		{name: "UnknownDatabase", url: server.URL(), change: func(c *pgxpool.Config) { c.ConnConfig.Database = "none" }, invalid: true},
		{name: "UnknownRole", url: server.URL(), change: func(c *pgxpool.Config) { c.ConnConfig.User = "nobody" }},
		{name: "UnknownParameter", url: server.URL(), change: settings("no_such_parameter", "1"), invalid: true},
		{name: "WrongParameter", url: server.URL(), change: settings("statement_timeout", "soon"), invalid: true},
		{name: "FixedParameter", url: server.URL(), change: settings("shared_buffers", "1GB"), invalid: true},
		{name: "RefusedByPooler", url: pooler.URL(), change: settings("search_path", "public"), invalid: true},
		{name: "StatementMode", url: statements.URL(), change: same, invalid: true},
		{name: "Crowded", url: server.URL(), change: same, want: true, before: func(t *testing.T) {
			openConns(t, dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 8 }), 8)
		}},
	}
	for _, kind := range tenures {
		for _, tt := range tests {
			t.Run(kind.name+tt.name, func(t *testing.T) {
				if tt.before != nil {
					tt.before(t)
				}
				d := kind.open(t, dialWith(t, tt.url, tt.change))
				if !tt.want {
					d = persistent{d}
				}
				ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
				defer cancel()
				_, err := d.Acquire(ctx, noWait("a", "a"))
				if err == nil || errors.Is(err, driver.ErrUnavailable) != tt.want ||
					errors.Is(err, driver.ErrInvalid) != tt.invalid || errors.Is(err, driver.ErrHeld) ||
					errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Acquire = %v, want an error, ErrUnavailable: %v, ErrInvalid: %v, neither ErrHeld nor the end of a context", err, tt.want, tt.invalid)
				}
			})
		}
	}
}

// TestStatementTimeout has statements wait for longer than the user's time limits: for what
// serializes the creation of tables, for a row, and in the beginning of a transaction.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	server := database(t)
	pool := dial(t, server.URL())
	must(t, pool, `CREATE SCHEMA slow; CREATE FUNCTION slow.current_setting(text, boolean) RETURNS text LANGUAGE sql AS
		'SELECT CASE WHEN pg_sleep(0.6) IS NOT NULL THEN pg_catalog.current_setting($1, $2) END'`)
	limits := []string{"statement_timeout", "300ms", "lock_timeout", "150ms"}
	create := func(table string) {
		release(t, acquire(t, newDriver(t, pool, pglock.Table(table)), request("limited", "a")))
	}
	for _, tt := range []struct {
		name string
		set  []string
		lock func(table string) (unlock func())
	}{
		{"creation", limits, func(string) func() {
			tx := begin(t, pool, "")
			if _, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1936615778, 0)"); err != nil {
				t.Fatal(err)
			}
			return func() { tx.Rollback(t.Context()) }
		}},
		{"row", limits, func(table string) func() { create(table); return lockRow(t, pool, table, "limited") }},
		{"beginning", append(limits, "search_path", "slow, pg_catalog, public"),
			func(table string) func() { create(table); return func() {} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var err error
			for round := range 3 { // a busy machine may take longer than a request lasts
				table := fmt.Sprint(tt.name, round)
				d := newDriver(t, dialWith(t, server.URL(), settings(tt.set...)), pglock.Table(table))
				unlock := tt.lock(table)
				w := livetest.Acquiring(t, d, noWait("limited", "b"))
				time.Sleep(time.Second) // more than all limits
				unlock()
				if err = w.End(t); err == nil {
					release(t, w.Lease)
					return
				}
			}
			t.Errorf("Acquire = %v", err)
		})
	}
}
