package pglock_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// TestBusyPool has the program use all connections of its pool. The locks must not notice.
func TestBusyPool(t *testing.T) {
	server := pgtest.Start(t)
	pool := dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	d := newDriver(t, pool)
	l := acquire(t, d, request("busy pool", "a"))
	w := livetest.Waiting(t, d, request("busy pool", "b"))
	renew := func() error { return d.Renew(t.Context(), []driver.Lease{l})[0].Err }
	livetest.Await(t, "renewal", renew)
	release(t, l)
	l = w.Get(t)

	// Nor does a renewal wait for requests and renewals of the driver itself whose row is locked.
	admin := dial(t, server.URL())
	stuck := acquire(t, d, request("locked", "a"))
	defer lockRow(t, admin, "snib_locks", "locked")()
	for _, id := range []string{"b", "c"} {
		defer livetest.Acquiring(t, persistent{d}, request("locked", id)).Cancel()
	}
	go func() {
		for t.Context().Err() == nil {
			d.Renew(t.Context(), []driver.Lease{stuck})
		}
	}()
	waiting := func() int {
		n := blocked(t, admin)
		if n > 1 {
			t.Fatal("a statement waits for its row on the connection that is left to urgent ones")
		}
		return n
	}
	livetest.Await(t, "renewal beside requests for a locked row", func() error {
		if waiting() == 0 {
			return errors.New("none waits")
		}
		return renew()
	})
	for began := time.Now(); time.Since(began) < time.Second; {
		waiting()
	}
}

// TestNotReplicated cancels a commit that waits for a synchronous standby: the server answers that
// it is done, and the standby may know nothing of it. That is no grant, also for a user whose
// settings hide warnings.
func TestNotReplicated(t *testing.T) {
	server := pgtest.Start(t)
	admin := dial(t, server.URL())
	d := newDriver(t, dialWith(t, server.URL(), settings("client_min_messages", "error")))
	release(t, acquire(t, d, request("replicated", "a")))
	must(t, admin, "CREATE TABLE probe (n integer)")
	must(t, admin, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
	must(t, admin, "SELECT pg_reload_conf()")
	var last time.Time
	awaitCommit := func() {
		t.Helper()
		livetest.Await(t, "commit that waits for the standby", func() error {
			var began time.Time
			err := admin.QueryRow(t.Context(), "SELECT query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query_start > $1", last).Scan(&began)
			if err == nil {
				last = began
			}
			return err
		})
	}
	const cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	var stop atomic.Bool
	var probe sync.WaitGroup
	probe.Go(func() { // until commits wait, some time after the server has read its settings
		for err := error(nil); err == nil && !stop.Load(); {
			_, err = admin.Exec(t.Context(), "INSERT INTO probe VALUES (1)")
		}
	})
	awaitCommit()
	stop.Store(true)
	must(t, admin, cancel)
	probe.Wait()
	w := livetest.Acquiring(t, persistent{d}, request("replicated", "b"))
	awaitCommit()
	must(t, admin, cancel)
	awaitCommit() // the request, again
	w.Running(t, "although no standby knows of the grant")
	must(t, admin, "ALTER SYSTEM RESET synchronous_standby_names")
	must(t, admin, "SELECT pg_reload_conf()")
	release(t, w.Get(t))
}
