package pglock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// tenures are the kinds of drivers.
var tenures = []struct {
	name string
	open func(testing.TB, *pgxpool.Pool) driver.Driver
}{
	{"Rows", openRows},
	{"Session", openSession},
}

// as returns a pool that connects as another role.
func as(t testing.TB, server *pgtest.Server, role string) *pgxpool.Pool {
	t.Helper()
	return dialWith(t, server.URL(), func(c *pgxpool.Config) { c.ConnConfig.User = role })
}

// TestForgedNotifications has a role that may only read the table send false notifications to
// holders and waiters: that ends no hold, grants nothing, and causes a bounded number of
// statements.
func TestForgedNotifications(t *testing.T) {
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	must(t, pool, "CREATE ROLE reader LOGIN")
	reader := as(t, server, "reader")
	count := &counter{}
	d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = count }))
	other := newDriver(t, pool)
	held, told := livetest.AcquireTold(t, d, request("held", "a"))
	last, end := livetest.AcquireTold(t, d, request("last", "a"))
	theirs := acquire(t, other, request("waited for", "b"))
	w := livetest.Waiting(t, d, request("waited for", "a"))
	must(t, pool, "GRANT SELECT ON snib_locks TO reader")
	awaitListener(t, pool)

	began, before := time.Now(), count.n.Load()
	flood(t, reader, "snib_locks", "b", "holders", 5000)
	flood(t, reader, "snib_locks", "g", "waiters", 5000)
	if err := other.Break(t.Context(), "last", last.ID()); err != nil {
		t.Fatalf("Break = %v", err)
	}
	// By then the driver has received all earlier notifications.
	livetest.AwaitLoss(t, end, livetest.Patience)
	took, sent := time.Since(began), count.n.Load()-before
	t.Logf("%d statements in %v", sent, took)
	if most := 20 + int64(took.Seconds()*40); sent > most {
		t.Errorf("10000 forged notifications cost %d statements in %v, want at most %d", sent, took, most)
	}
	select {
	case err := <-told:
		t.Errorf("a role that may only read has ended a hold: %v", err)
	default:
	}
	if err := d.Renew(t.Context(), []driver.Lease{held})[0].Err; err != nil {
		t.Errorf("Renew after forged notifications = %v", err)
	}
	mustBeHeld(t, other, "held", "after forged notifications")
	w.Running(t, "after forged notifications")
	release(t, theirs)
	release(t, w.Get(t))
	release(t, held)
}

// flood notifies the entries in a column of a table, many times.
func flood(t testing.TB, pool *pgxpool.Pool, table, kind, column string, times int) {
	t.Helper()
	// The server sends equal notifications of one transaction only once.
	must(t, pool, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
		PERFORM pg_notify(e->>'channel', '%s' || (e->>'nonce')) FROM %s, jsonb_array_elements(%s) e
			WHERE name IN ('held', 'waited for');
		COMMIT; END LOOP; END $$`, times, kind, table, column))
}

// awaitListener waits until a driver listens.
func awaitListener(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	livetest.Await(t, "listener", func() error {
		if !listens(t, pool) {
			return errors.New("nobody listens")
		}
		return nil
	})
}

// listens reports whether a driver listens.
func listens(t testing.TB, pool *pgxpool.Pool) bool {
	return query[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN %' OR query = '-- ping')`)
}
