package pglock_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestBatchBesideLockedRows(t *testing.T) {
	server := pgtest.Start(t)
	admin := dial(t, server.URL())
	jobtest.BatchTest{
		Driver:  newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 8 })),
		LockRow: func(name string) func() { return lockRow(t, admin, "snib_locks", name) },
		Blocked: func() int {
			return int(query[int64](t, admin, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
		},
	}.Run(t)
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
