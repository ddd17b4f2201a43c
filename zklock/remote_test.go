package zklock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
)

// TestLeaseByID releases leases of another driver by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := shared(t)
	holder, other := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	jobtest.SessionLeaseByID(t, holder, other)
}

// TestMinHoldByID releases a hold that had to wait, by its id, through another driver. MinHold
// counts from the grant.
func TestMinHoldByID(t *testing.T) {
	t.Parallel()
	server := shared(t)
	tree := newTree(t, server.Addr())
	d, other := newDriver(t, []string{server.Addr()}), newDriver(t, []string{server.Addr()})
	first := acquire(t, d, request("minHoldByID", "first"))
	req := request("minHoldByID", "waiter")
	req.MinHold = 2 * time.Second
	waiting := jobtest.Acquiring(t, d, req)
	tree.awaitChildren("/snib/minHoldByID", 2)
	time.Sleep(time.Second) // the wait, which must not count
	freed := driver.Now()
	release(t, first)
	l := waiting.Get(t)
	release(t, other.Lease("minHoldByID", "waiter", time.Minute))
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release after a release by id = %v, want ErrLost", err)
	}
	if err := other.Lease("minHoldByID", "waiter", time.Minute).Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of what MinHold keeps = %v, want ErrLost", err)
	}
	release(t, acquire(t, other, request("minHoldByID", "next")))
	if kept := driver.Now().Sub(freed); kept < req.MinHold {
		t.Errorf("the lock was given to the next %v after the grant at the earliest, want %v", kept, req.MinHold)
	}
	tree.awaitChildren("/snib/minHoldByID", 0)
}
