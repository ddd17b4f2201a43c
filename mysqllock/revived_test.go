package mysqllock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// After a failover, a server that had not got the last changes has waiters that wait no more. If
// their process lives, because it waits for another lock, they keep nobody from this one.
func TestRevivedWaiters(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	d, other := newDriver(t, server.DSN()), newDriver(t, server.DSN())
	wait := func(name, id string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := d.Acquire(ctx, request(name, id)); done <- err }()
		livetest.Await(t, "waiter", func() error { return waitersOf(t, other, name, 1) })
		return func() { cancel(); <-done }
	}
	l := acquire(t, other, request("job", "holder"))
	acquire(t, other, request("elsewhere", "holder"))
	stop := wait("job", "gone")
	must(t, db, "CREATE TABLE past AS SELECT waiters FROM snib_locks WHERE name = 'job'")
	stop()
	release(t, l)
	defer wait("elsewhere", "alive")()
	must(t, db, "UPDATE snib_locks SET version = version + 1, called = NULL, waiters = (SELECT waiters FROM past) WHERE name = 'job'")
	if err := waitersOf(t, other, "job", 1); err != nil {
		t.Fatal(err)
	}
	release(t, acquire(t, other, request("job", "next"))) // behind a waiter that waits no more
}

// waitersOf returns an error unless a lock has that many waiters.
func waitersOf(t *testing.T, d *mysqllock.Driver, name string, want int) error {
	t.Helper()
	var all []driver.Waiting
	err := d.List(testContext(t), name, func(st driver.Status) bool { all = append(all, st.Waiters...); return true })
	if err == nil && len(all) != want {
		err = errors.New("not as many waiters as there should be")
	}
	return err
}
