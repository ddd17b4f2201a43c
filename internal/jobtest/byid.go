package jobtest

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// SessionLeaseByID is for drivers whose tenure is a session. It has holder acquire leases of all
// kinds, and other release them by their ids. Other can't renew or label them, because they belong
// to the session of holder.
func SessionLeaseByID(t *testing.T, holder, other driver.Driver) {
	t.Helper()
	byID := func(d driver.Driver, name, id string) driver.Lease { return d.Lease(name, id, time.Minute) }
	for name, req := range map[string]driver.Request{"exclusive": {}, "shared": {Shared: true}, "semaphore": {Slots: 2}} {
		t.Run(name, func(t *testing.T) {
			req.Name, req.ID, req.TTL = name, "id of "+name, time.Minute
			beside := req
			beside.ID = "beside " + name
			l, told := AcquireTold(t, holder, req)
			if got := l.ID(); got != req.ID {
				t.Errorf("ID = %q, want %q", got, req.ID)
			}
			var second driver.Lease // on the other side of the same lock
			if name != "exclusive" {
				second = Acquire(t, holder, beside)
			}
			if err := byID(other, name, "no such id").Release(t.Context()); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Release of an id that holds nothing = %v, want ErrLost", err)
			}
			remote := byID(other, name, req.ID)
			if g := remote.Grant(); remote.ID() != req.ID || g.Token != 0 || !g.Start.IsZero() {
				t.Errorf("ID = %q, Grant = %+v, want the id and nothing of the grant", remote.ID(), g)
			}
			if err := other.Renew(t.Context(), []driver.Lease{remote})[0].Err; !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Renew of another driver's lease = %v, want ErrUnsupported", err)
			}
			if err := remote.SetHolder(t.Context(), driver.Holder{Label: "x"}); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("SetHolder of another driver's lease = %v, want ErrUnsupported", err)
			}
			if err := holder.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
				t.Errorf("Renew of the holder = %v: an id of nothing has changed something", err)
			}
			Release(t, remote)
			Release(t, remote) // again
			AwaitLoss(t, told, livetest.Patience)
			for what, err := range map[string]error{
				"Renew of the holder":   holder.Renew(t.Context(), []driver.Lease{l})[0].Err,
				"Release of the holder": l.Release(t.Context()),
				"another Release by id": byID(other, name, req.ID).Release(t.Context()),
			} {
				if !errors.Is(err, driver.ErrLost) {
					t.Errorf("after a release by id, %s = %v, want ErrLost", what, err)
				}
			}
			if second != nil {
				if err := holder.Renew(t.Context(), []driver.Lease{second})[0].Err; err != nil {
					t.Errorf("Renew of the lease beside it = %v", err)
				}
				Release(t, second)
			}
		})
	}
	t.Run("waiter", func(t *testing.T) {
		held := Acquire(t, holder, driver.Request{Name: "queue", ID: "held", TTL: time.Minute})
		w := Waiting(t, holder, driver.Request{Name: "queue", ID: "waits", TTL: time.Minute})
		if err := byID(other, "queue", "waits").Release(t.Context()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release of a waiter = %v, want ErrLost", err)
		}
		Release(t, held)
		Release(t, w.Get(t))
	})
	t.Run("own", func(t *testing.T) {
		Acquire(t, holder, driver.Request{Name: "own", ID: "own", TTL: time.Minute})
		own := byID(holder, "own", "own")
		if err := holder.Renew(t.Context(), []driver.Lease{own})[0].Err; err != nil {
			t.Errorf("Renew by id through the driver that acquired = %v", err)
		}
		if err := own.SetHolder(t.Context(), driver.Holder{Label: "x"}); err != nil {
			t.Errorf("SetHolder by id through the driver that acquired = %v", err)
		}
		Release(t, own)
	})
}

// MinHoldOfWaiter releases a hold that had to wait: by itself, and through another driver by its
// id. MinHold counts from the grant, and not from the beginning of the wait.
func MinHoldOfWaiter(t *testing.T, holder, other driver.Driver) {
	t.Helper()
	for name, byID := range map[string]bool{"Itself": false, "ByID": true} {
		t.Run(name, func(t *testing.T) {
			newRequest := func(id string) driver.Request {
				return driver.Request{Name: "min hold " + name, ID: id, TTL: time.Minute}
			}
			first, req := Acquire(t, holder, newRequest("first")), newRequest("waiter")
			req.MinHold = 2 * time.Second
			waiting := Waiting(t, holder, req)
			time.Sleep(time.Second) // the wait, which must not count
			freed := driver.Now()
			Release(t, first)
			l := waiting.Get(t)
			if byID {
				Release(t, other.Lease(req.Name, req.ID, time.Minute))
				for what, late := range map[string]driver.Lease{"of the holder": l, "by id, again,": other.Lease(req.Name, req.ID, time.Minute)} {
					if err := late.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
						t.Errorf("Release %s after a release by id = %v, want ErrLost", what, err)
					}
				}
			} else {
				Release(t, l)
			}
			Release(t, Acquire(t, other, newRequest("next")))
			if kept := driver.Now().Sub(freed); kept < req.MinHold {
				t.Errorf("the lock was given to the next %v after the grant at the earliest, want %v", kept, req.MinHold)
			}
		})
	}
}
