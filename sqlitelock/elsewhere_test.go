//go:build linux

package sqlitelock

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestFreedElsewhere frees locks in another process than the one that took them. The waiter, in a
// third process or in one of the two, gets the lock at once. By its own checks, once a second, it
// would need 10 s in all.
func TestFreedElsewhere(t *testing.T) {
	const rounds, limit = 10, 4 * time.Second
	release := func(d *Driver, l driver.Lease) error {
		return d.Lease("a name", l.(*lease).ID(), time.Minute).Release(t.Context())
	}
	breakIt := func(d *Driver, l driver.Lease) error {
		return d.Break(t.Context(), "a name", l.(*lease).ID())
	}
	path := newPath(t)
	holder, other, third := open(t, path), open(t, path), open(t, path)
	for _, tt := range []struct {
		name     string
		detached bool
		waiter   *Driver
		free     func(*Driver, driver.Lease) error
	}{
		{"Release", false, third, release},
		{"Detached", true, third, release},
		{"WaiterOfHolder", true, holder, release},
		{"WaiterOfOther", true, other, release},
		{"Break", false, third, breakIt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slack := livetest.Slack(t)
			var waited time.Duration
			for range rounds {
				req := request("holder")
				req.Detached = tt.detached
				l := acquire(t, holder, req)
				got := livetest.Waiting(t, tt.waiter, request("next"))
				if err := tt.free(other, l); err != nil {
					t.Fatal(err)
				}
				next, took := awaitGrant(t, got)
				waited += took
				livetest.Release(t, next)
			}
			if waited > limit+slack() {
				t.Errorf("the waiters got the lock %v after it was freed, in %d rounds together, want at most %v", waited, rounds,
					limit)
			}
		})
	}
}

// TestDetachedHasNoByte checks that nothing is left of a detached lease in the process that took
// it, once another one has released it.
func TestDetachedHasNoByte(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d, other := open(t, path), open(t, path)
	req := request("detached")
	req.Detached = true
	l := acquire(t, d, req)
	if err := other.Lease(req.Name, l.ID(), time.Minute).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.leases.Range(func(key, _ any) bool {
		t.Errorf("the driver remembers the lease %v", key)
		return true
	})
	if n := len(d.side.held); n != 1 {
		t.Errorf("%d bytes are locked, want that of the process", n)
	}
	if err := d.Renew(t.Context(), []driver.Lease{d.Lease(req.Name, l.ID(), time.Minute)})[0].Err; !errors.Is(err,
		driver.ErrLost) {
		t.Errorf("Renew = %v, want ErrLost", err)
	}
}

// TestLeaseOfDeadProcess checks that a lease that ended with its process is not revived by its id.
func TestLeaseOfDeadProcess(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	dead, d := open(t, path), open(t, path)
	req := request("dead")
	l := acquire(t, dead, req)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l = d.Lease(req.Name, l.ID(), time.Minute)
	for op, err := range map[string]error{
		"Renew":     d.Renew(t.Context(), []driver.Lease{l})[0].Err,
		"SetHolder": l.SetHolder(t.Context(), driver.Holder{Label: "x"}), "Release": l.Release(t.Context()),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s by id = %v, want ErrLost", op, err)
		}
	}
}
