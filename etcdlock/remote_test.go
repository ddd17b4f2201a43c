package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// TestLeaseByID releases leases of another driver by their ids.
func TestLeaseByID(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	jobtest.SessionLeaseByID(t, open(t, dial(t, server)), open(t, dial(t, server)))
}

// TestMinHoldByID releases a hold that had to wait, by its id, through another driver. MinHold
// counts from the grant.
func TestMinHoldByID(t *testing.T) {
	t.Parallel()
	d, other := open(t, dialShared(t)), open(t, dialShared(t))
	first := acquire(t, d, request("job", "first"))
	req := request("job", "waiter")
	req.MinHold = 3 * time.Second
	waiting := jobtest.Waiting(t, d, req)
	time.Sleep(2 * time.Second) // the wait, which must not count
	freed := driver.Now()
	release(t, first)
	l := waiting.Get(t)
	release(t, other.Lease("job", "waiter", time.Minute))
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release after a release by id = %v, want ErrLost", err)
	}
	if err := other.Lease("job", "waiter", time.Minute).Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release of what MinHold keeps = %v, want ErrLost", err)
	}
	release(t, acquire(t, other, request("job", "next")))
	if kept := driver.Now().Sub(freed); kept < req.MinHold {
		t.Errorf("the lock was given to the next %v after the grant at the earliest, want %v", kept, req.MinHold)
	}
}
