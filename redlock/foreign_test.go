package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// TestForeignLeaseIsReadOnce counts the requests to a node. Once a majority has confirmed the
// lease, each renewal is one: the lease need not be looked up again.
func TestForeignLeaseIsReadOnce(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	acquire(t, d, request("x", "the id", time.Minute))
	f := d.Lease("x", "the id", time.Minute)
	livetest.Await(t, "first renewal", func() error { return renew(t, d, f) })
	const renewals = 20
	before := c.nodes[0].Calls()["evalsha"]
	for range renewals {
		_ = renew(t, d, f) // a busy machine may be late
	}
	if calls := c.nodes[0].Calls()["evalsha"] - before; calls > renewals+1 {
		t.Errorf("%d requests for %d renewals", calls, renewals)
	}
}

// TestForeignLeaseWithoutMajority says that the store is unavailable, and not that a lease is lost,
// while no majority of the nodes answers.
func TestForeignLeaseWithoutMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	acquire(t, open(t, c.servers), request("x", "the id", time.Minute))
	c.awaitKeys(t, "x")
	d := open(t, c.servers, redlock.NodeTimeout(50*time.Millisecond))
	c.nodes[0].Hang()
	c.nodes[2].Hang()
	f := d.Lease("x", "the id", time.Minute)
	if err := renew(t, d, f); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Renew = %v, want ErrUnavailable", err)
	}
	if err := f.Release(within(t, testTimeout)); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Release = %v, want ErrUnavailable", err)
	}
	c.nodes[0].Resume()
	c.nodes[2].Resume()
	livetest.Await(t, "release when the nodes are back", func() error { return f.Release(within(t, testTimeout)) })
	awaitNoKeys(t, c.nodes...)
}
