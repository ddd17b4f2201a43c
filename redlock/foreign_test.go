package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// TestForeignLeaseWithoutMajority says that the store is unavailable, and not that a lease is lost,
// while no majority of the nodes answers.
func TestForeignLeaseWithoutMajority(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	l := acquire(t, open(t, c.servers), request("x", "the id", time.Minute))
	c.awaitKeys(t, "x")
	d := open(t, c.servers, redlock.NodeTimeout(50*time.Millisecond))
	c.nodes[0].Hang()
	c.nodes[2].Hang()
	f := d.Lease("x", l.ID(), time.Minute)
	if err := tryRenew(t, d, f); !errors.Is(err, driver.ErrUnavailable) {
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
