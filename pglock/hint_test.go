package pglock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
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

// TestListenerReconnects ends the connection for notifications again and again. The driver has
// another one soon each time, because without it a holder does not learn that its lease was broken.
func TestListenerReconnects(t *testing.T) {
	pool := dial(t, pgtest.Start(t).URL())
	release(t, acquire(t, newDriver(t, pool), request("held", "first")))
	req := request("held", "a")
	req.OnLost = func(error) {} // who wants to be told of a loss
	acquire(t, newDriver(t, pool), req)
	slack := livetest.Slack(t)
	began, last := time.Now(), 0
	for range 12 {
		livetest.Await(t, "another listener", func() error {
			const end = `SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> $1 AND pg_terminate_backend(pid)`
			return pool.QueryRow(t.Context(), end, last).Scan(&last)
		})
	}
	// Each pause is half a second at most. If they doubled, they would take 31 s in all.
	if took := time.Since(began); took > 25*time.Second+slack() {
		t.Errorf("the listener came back 11 times in %v", took)
	}
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
	held, told := jobtest.AcquireTold(t, d, request("held", "a"))
	_, end := jobtest.AcquireTold(t, d, request("last", "a"))
	theirs := acquire(t, other, request("waited for", "b"))
	w := jobtest.Waiting(t, d, request("waited for", "a"))
	must(t, pool, "GRANT SELECT ON snib_locks TO reader")
	awaitListener(t, pool)

	began, before := time.Now(), count.n.Load()
	flood(t, reader, "snib_locks", "b", "holders", 5000)
	flood(t, reader, "snib_locks", "g", "waiters", 5000)
	if err := other.Break(t.Context(), "last", "a"); err != nil {
		t.Fatalf("Break = %v", err)
	}
	// By then the driver has received all earlier notifications.
	jobtest.AwaitLoss(t, end, livetest.Patience)
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
		n := 0
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'`).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody listens")
		}
		return err
	})
}

// A hold that ended only in the process lasts in the store for its TTL, and not as long as the
// session.
func TestLapse(t *testing.T) {
	t.Parallel()
	server := database(t)
	t.Run("Rows", func(t *testing.T) {
		jobtest.Lapse(t, func() driver.Driver { return newDriver(t, dial(t, server.URL())) })
	})
	t.Run("Session", func(t *testing.T) {
		jobtest.Lapse(t, func() driver.Driver { return newSession(t, dial(t, server.URL()), pglock.Timeout(2*time.Second)) })
	})
}

// TestHandOverWindow measures for how long a broken lease is still handed over in its process.
func TestHandOverWindow(t *testing.T) {
	t.Parallel()
	livetest.Long(t)
	server := database(t)
	jobtest.HandOverWindow(t, func(t *testing.T) driver.Driver { return newDriver(t, dial(t, server.URL())) })
}

// TestStaleHandOver has the server end a lease while goroutines of one process queue for the
// lock.
func TestStaleHandOver(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	t.Run("RowsBroken", func(t *testing.T) {
		open := func() driver.Driver { return newDriver(t, dial(t, server.URL())) }
		operator := newDriver(t, pool)
		jobtest.StaleHandOver(t, open, func(name, id string) {
			if err := operator.Break(t.Context(), name, id); err != nil {
				t.Errorf("Break = %v", err)
			}
		})
	})
	t.Run("RowsEmptied", func(t *testing.T) { // nobody tells the holder
		jobtest.StaleHandOver(t, func() driver.Driver { return newDriver(t, dial(t, server.URL())) }, func(name, _ string) {
			must(t, pool, "UPDATE snib_locks SET holders = '[]' WHERE name = $1", name)
		})
	})
	t.Run("SessionTerminated", func(t *testing.T) {
		first := true
		open := func() driver.Driver {
			name := "theirs"
			if first {
				first, name = false, "ours"
			}
			return newSession(t, named(t, server, name))
		}
		jobtest.StaleHandOver(t, open, func(string, string) {
			must(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '% ours'")
		})
	})
}
