package pglock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestBatchBesideLockedRows(t *testing.T) {
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			server := pgtest.Start(t)
			admin := dial(t, server.URL())
			jobtest.BatchTest{
				Driver: newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
					c.MaxConns = 8
					c.ConnConfig.DefaultQueryExecMode = mode
				})),
				LockRow: func(name string) func() { return lockRow(t, admin, "snib_locks", name) },
				Blocked: func() int { return blocked(t, admin) },
			}.Run(t)
		})
	}
}

// blocked returns how many statements wait for a row.
func blocked(t *testing.T, admin *pgxpool.Pool) int {
	return int(query[int64](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
}

// TestCrashAfterBatch kills the server as soon as it has answered a batch, as [TestCrash] does.
// Some of the rows are new. Two requests that wait for their rows make the others gather.
func TestCrashAfterBatch(t *testing.T) {
	server := pgtest.Start(t, "wal_writer_delay=10s")
	admin := dial(t, server.URL())
	d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
		settings("synchronous_commit", "off")(c)
		c.MaxConns = 8
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, name := range []string{"locked 1", "locked 2"} {
		release(t, acquire(t, d, request(name, "a")))
		defer lockRow(t, admin, "snib_locks", name)()
		go func() { _, _ = d.Acquire(ctx, request(name, "b")) }()
	}
	livetest.Await(t, "two statements that wait for rows", func() error {
		if n := blocked(t, admin); n != 2 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	const n = 20
	for i := range n / 2 {
		must(t, admin, "INSERT INTO snib_locks VALUES ($1, 1, 0, '[]', '[]', 1)", fmt.Sprint("name ", i))
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if _, err := d.Acquire(t.Context(), request(fmt.Sprint("name ", i), "a")); err != nil {
				t.Errorf("Acquire = %v", err)
			}
		})
	}
	all.Wait()
	server.Kill()
	server.Restart()
	other := newDriver(t, dial(t, server.URL()))
	for i := range n {
		mustBeHeld(t, other, fmt.Sprint("name ", i), "of what was granted in a batch just before the crash")
	}
}

// TestBatchOfWildRows takes and frees many locks at once. Rows with which the server can't compute
// fail only their own requests.
func TestBatchOfWildRows(t *testing.T) {
	server := pgtest.Start(t)
	admin := dial(t, server.URL())
	d := newDriver(t, admin)
	const n = 40
	isWild := func(i int) bool { return i%10 == 7 }
	name := func(i int) string { return fmt.Sprint("name ", i) }
	leases, errs := make([]driver.Lease, n), make([]error, n)
	each := func(fn func(i int) error) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { errs[i] = fn(i) })
		}
		all.Wait()
		for i, err := range errs {
			if isWild(i) != (err != nil) {
				t.Errorf("request %d = %v; its row is wild: %v", i, err, isWild(i))
			}
		}
	}
	for i := range n {
		release(t, acquire(t, d, request(name(i), "first")))
		if isWild(i) {
			must(t, admin, "UPDATE snib_locks SET token = 9223372036854775807 WHERE name = $1", name(i))
		}
	}
	each(func(i int) (err error) {
		leases[i], err = d.Acquire(t.Context(), noWait(name(i), "second"))
		return err
	})
	if t.Failed() {
		return
	}
	for i := range n {
		if isWild(i) {
			must(t, admin, "UPDATE snib_locks SET token = 1 WHERE name = $1", name(i))
			leases[i] = acquire(t, d, request(name(i), "second"))
			must(t, admin, `UPDATE snib_locks SET holders = jsonb_set(holders, '{0,until}', '"soon"') WHERE name = $1`, name(i))
		}
	}
	each(func(i int) error { return leases[i].Release(t.Context()) })
}
