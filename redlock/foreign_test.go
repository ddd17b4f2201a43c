package redlock_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// values returns the values of a key on the nodes.
func (c *cluster) values(key string) (all []string) {
	for _, n := range c.nodes {
		all = append(all, fmt.Sprint(n.Must("GET", key)))
	}
	return all
}

// checkExpiry checks that the key of a lock exists for longer than least on all nodes.
func (c *cluster) checkExpiry(t *testing.T, key string, least time.Duration, when string) {
	t.Helper()
	for i, n := range c.nodes {
		if left, _ := n.Must("PTTL", key).(int64); left < least.Milliseconds() {
			t.Errorf("%s, the key on node %d expires in %d ms, want more than %v", when, i, left, least)
		}
	}
}

// checkLost checks that a lease has ended: it can be neither renewed, labelled nor released.
func checkLost(t *testing.T, d driver.Driver, l driver.Lease, what string) {
	t.Helper()
	for verb, err := range map[string]error{
		"Renew": renew(t, d, l), "SetHolder": l.SetHolder(within(t, testTimeout), driver.Holder{Label: "label"}),
		"Release": l.Release(within(t, testTimeout)),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s of %s = %v, want ErrLost", verb, what, err)
		}
	}
}

// TestForeignLease renews, labels and releases a lease by its id that another driver has acquired.
func TestForeignLease(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d1, d2 := open(t, c.servers), open(t, c.servers)
	l := acquire(t, d1, request("x", "the id", 20*time.Second))
	c.awaitKeys(t, "x")
	before := c.values("x")
	for _, f := range []driver.Lease{d2.Lease("x", "another id", time.Minute), d2.Lease("y", "the id", time.Minute)} {
		checkLost(t, d2, f, "a lease that nobody has")
	}
	c.awaitKeys(t, "x")
	if after := c.values("x"); !slices.Equal(after, before) {
		t.Errorf("requests with another id or name have changed %q to %q", before, after)
	}

	f := d2.Lease("x", "the id", time.Minute)
	if id := f.ID(); id != "the id" || f.Grant() != (driver.Grant{}) {
		t.Errorf("the lease has the id %q and the grant %+v", id, f.Grant())
	}
	if r := d2.Renew(within(t, testTimeout), []driver.Lease{f})[0]; r.Err != nil || r.Start.IsZero() {
		t.Fatalf("Renew = %+v", r)
	}
	c.checkExpiry(t, "x", 30*time.Second, "renewed for a minute by another process")
	if err := renew(t, d1, l); err != nil {
		t.Errorf("Renew by the process that has it = %v", err)
	}
	c.checkExpiry(t, "x", 30*time.Second, "renewed for 20 s after that")
	if err := f.SetHolder(within(t, testTimeout), driver.Holder{Label: "a label"}); err != nil {
		t.Errorf("SetLabel = %v", err)
	}
	st, err := d1.Status(t.Context(), "x")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Holder.Label != "a label" || st.Holders[0].ID != "the id" ||
		st.Holders[0].Token != token(l) {
		t.Errorf("Status = %+v, %v, want the label and all else as before", st, err)
	}
	release(t, f)
	awaitNoKeys(t, c.nodes...)
	checkLost(t, d1, l, "a lease that another process has released")
	checkLost(t, d2, d2.Lease("x", "the id", time.Minute), "a lease that was released")

	next := acquire(t, d1, request("x", "the next id", time.Minute))
	release(t, f) // which does nothing the second time
	if err := renew(t, d1, next); err != nil {
		t.Errorf("Renew after an earlier lease was released again = %v", err)
	}
}

// TestForeignMinHold releases a lease by its id before MinHold is over. The lock stays closed, and
// can be broken.
func TestForeignMinHold(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d1, d2 := open(t, c.servers), open(t, c.servers)
	req := request("x", "the id", 20*time.Second)
	req.MinHold = time.Minute
	l := acquire(t, d1, req)
	c.awaitKeys(t, "x")
	// which keeps MinHold
	if err := d2.Lease("x", "the id", time.Minute).SetHolder(within(t, testTimeout),
		driver.Holder{Label: "a label"}); err != nil {
		t.Errorf("SetLabel = %v", err)
	}
	release(t, d2.Lease("x", "the id", time.Minute))
	checkHeld(t, d2, request("x", "other", time.Minute), "before MinHold is over")
	c.checkExpiry(t, "x", 30*time.Second, "released with a MinHold of a minute")
	checkLost(t, d1, l, "a lease that another process has released")
	st, err := d2.Status(t.Context(), "x")
	if err != nil || len(st.Holders) != 1 {
		t.Fatalf("Status = %+v, %v, want what MinHold keeps", st, err)
	}
	if err := d2.Break(t.Context(), "x", st.Holders[0].ID); err != nil {
		t.Errorf("Break = %v", err)
	}
	release(t, acquire(t, d2, request("x", "other", time.Minute)))
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
