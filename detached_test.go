package snib_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// A detached hold outlives its Locker, and another process releases it.
func TestDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		detached := false
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			detached = req.Detached
			return send()
		}
		first, err := snib.New(d, snib.Prefix("p/"), snib.TTL(time.Hour), snib.Detached())
		wantErr(t, "New", err, nil)
		lock := acquire(t, first, "a")
		if !detached {
			t.Error("the request was not Detached")
		}
		id, token := lock.ID(), lock.Token()
		wantErr(t, "Close", first.Close(), nil)
		wantErr(t, "cause after Close", context.Cause(lock.Context()), snib.ErrClosed)

		other := open(t, store.Open(), snib.Prefix("p/"), snib.TTL(ttl))
		_, err = other.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire while it is held", err, snib.ErrHeld)
		adopted, err := other.Adopt(t.Context(), "a", id)
		wantErr(t, "Adopt", err, nil)
		if adopted.Token() != token || adopted.ID() != id || adopted.Name() != "p/a" {
			t.Errorf("Adopt = token %d of %q, want %d of %q", adopted.Token(), adopted.Name(), token, "p/a")
		}
		time.Sleep(time.Hour) // it is renewed now
		wantErr(t, "end of the context", adopted.Context().Err(), nil)
		release(t, adopted)
		release(t, acquire(t, other, "a"))
	})
}

// A detached hold ends with its TTL, counted from the last Adopt. Its Lock may be forgotten: the
// Traces are told of no loss, also if the hold ends elsewhere, and a late Release does not free a
// hold that was adopted meanwhile.
func TestDetachedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		store := new(memlock.Store)
		d := newSpy(store)
		l := open(t, d, snib.TTL(time.Hour), snib.Detached(), snib.Tracing(r.trace()))
		lock := acquire(t, l, "a")
		id, began := lock.ID(), time.Now()
		time.Sleep(40 * time.Minute)
		again, err := l.Adopt(t.Context(), "a", id)
		wantErr(t, "Adopt", err, nil)
		<-lock.Lost()
		wantErr(t, "late Release", lock.Release(), snib.ErrLost)
		_, err = open(t, store.Open()).TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire after it", err, snib.ErrHeld)
		<-again.Lost()
		if got, want := time.Since(began), 100*time.Minute; got < want-2*time.Minute || got >= want {
			t.Errorf("the hold ended after %v, want little less than %v", got, want)
		}
		release(t, acquire(t, open(t, store.Open()), "a"))
		if got, want := time.Since(began), 100*time.Minute; got != want {
			t.Errorf("the lock was free after %v, want %v", got, want)
		}
		if n := len(d.renewals()); n != 1 {
			t.Errorf("the hold was renewed %d times, want once, by Adopt", n)
		}
		_, err = l.Adopt(t.Context(), "a", id)
		wantErr(t, "Adopt after the end", err, snib.ErrLost)
		ended := acquire(t, l, "b")
		wantErr(t, "Break", open(t, store.Open()).Break(t.Context(), "b", ended.ID()), nil)
		wantErr(t, "cause after Break", context.Cause(ended.Context()), snib.ErrLost)
		d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
			req.OnLost = nil // like a store that tells nobody of losses
			return d.Driver.Acquire(ctx, req)
		}
		untold := acquire(t, l, "untold")
		wantErr(t, "Break", open(t, store.Open()).Break(t.Context(), "untold", untold.ID()), nil)
		wantErr(t, "Release after Break", untold.Release(), snib.ErrLost)
		acquire(t, l, "c")
		wantErr(t, "Close", l.Close(), nil)
		synctest.Wait()
		if lost, released := len(r.eventsOf("lost")), len(r.eventsOf("released")); lost != 0 || released != 5 {
			t.Errorf("the Traces were told of %d losses and %d releases, want 0 and 5", lost, released)
		}
		for _, e := range r.eventsOf("released") {
			wantErr(t, "Err of the release", e.Err, nil)
		}
	})
}

// If another process releases a detached hold early, the process that took it can acquire the lock
// again, although nothing has told it of the release.
func TestDetachedDoesNotBlockItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l, other := open(t, store.Open()), open(t, store.Open())
		lock := acquire(t, l.With(snib.Detached(), snib.TTL(time.Hour)), "a")
		_, err := l.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire beside a detached hold", err, snib.ErrHeld)
		began := time.Now()
		time.AfterFunc(time.Minute, func() {
			adopted, err := other.Adopt(t.Context(), "a", lock.ID())
			if err != nil {
				t.Errorf("Adopt = %v", err)
				return
			}
			release(t, adopted)
		})
		release(t, acquire(t, l, "a"))
		if got := time.Since(began); got != time.Minute {
			t.Errorf("the process that took the lock got it again after %v, want a minute", got)
		}
	})
}

// TestAdoptAmongSizes adopts a hold of a semaphore beside one that asked for another number.
func TestAdoptAmongSizes(t *testing.T) {
	store := new(memlock.Store)
	detached := open(t, store.Open(), snib.Detached())
	slot := acquire(t, detached.With(snib.Slots(4)), "pool")
	acquire(t, detached.With(snib.Slots(2)), "pool")
	_, err := open(t, store.Open(), snib.Slots(4)).Adopt(t.Context(), "pool", slot.ID())
	wantErr(t, "Adopt", err, nil)
}

func TestAdoptFails(t *testing.T) {
	store := new(memlock.Store)
	detached := open(t, store.Open(), snib.Detached())
	lock := acquire(t, detached, "a")
	reader := acquire(t, detached.With(snib.Shared()), "r")
	alive := acquire(t, open(t, store.Open()), "alive")
	kept := acquire(t, detached.With(snib.MinHold(time.Hour)), "kept")
	release(t, kept)
	gone := fault.Wrap(store.Open(), fault.Plan{})
	gone.Sever(fault.Fail)
	cancelled, cancel := context.WithCancelCause(t.Context())
	errStop := errors.New("stop")
	cancel(errStop)
	tests := []struct {
		name     string
		l        *snib.Locker
		ctx      context.Context
		lock, id string
		want     error
	}{
		{"Free", open(t, store.Open()), t.Context(), "free", lock.ID(), snib.ErrLost},
		{"AnotherID", open(t, store.Open()), t.Context(), "a", "other", snib.ErrLost},
		{"Kept", open(t, store.Open()), t.Context(), "kept", kept.ID(), snib.ErrLost},
		{"Alive", open(t, store.Open()), t.Context(), "alive", alive.ID(), snib.ErrInvalid},
		{"NoID", open(t, store.Open()), t.Context(), "a", "", snib.ErrInvalid},
		{"NoName", open(t, store.Open()), t.Context(), "", lock.ID(), snib.ErrInvalid},
		{"Kind", open(t, store.Open()), t.Context(), "r", reader.ID(), snib.ErrKind},
		{"Slots", open(t, store.Open(), snib.Slots(2)), t.Context(), "a", lock.ID(), snib.ErrKind},
		{"StoreGone", open(t, gone), t.Context(), "a", lock.ID(), fault.ErrSevered},
		{"Cancelled", open(t, store.Open()), cancelled, "a", lock.ID(), errStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.l.Adopt(tt.ctx, tt.lock, tt.id)
			wantErr(t, "Adopt", err, tt.want)
			if tt.id != "" && strings.Contains(err.Error(), tt.id) {
				t.Errorf("the error has the id, with which the lock can be released: %v", err)
			}
		})
	}
	if st, err := detached.Status(t.Context(), "free"); err != nil || len(st.Holders) > 0 {
		t.Errorf("Adopt of a lock that was free left %+v, %v", st, err)
	}
	for _, lock := range []*snib.Lock{lock, reader, alive} { // nothing was freed
		release(t, lock)
	}
}

// A lease that its process renews can't be adopted: neither by the id of a hold that was released,
// and whose lease was handed over within the process, nor by that of the present one.
func TestAdoptIsRefusedWhileRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l, other := open(t, store.Open()), open(t, store.Open())
		first, locks := acquire(t, l, "a"), make(chan *snib.Lock, 2)
		for range 2 {
			go func() { locks <- acquire(t, l, "a") }()
		}
		synctest.Wait()
		release(t, first)
		second := <-locks // acquired with a token for the third
		release(t, second)
		third := <-locks
		for _, id := range []string{first.ID(), second.ID(), third.ID()} {
			if adopted, err := other.Adopt(t.Context(), "a", id); err == nil {
				t.Errorf("Adopt while another process holds the lock with token %d: got token %d", third.Token(), adopted.Token())
			}
		}
		release(t, third)
	})
}

// Nor can a hold that another process has adopted, and renews now: no request of a process that had
// it before, which may arrive late, makes it detached again.
func TestAdoptedIsNotDetached(t *testing.T) {
	store := new(memlock.Store)
	d := fault.Wrap(store.Open(), fault.Plan{})
	detached := open(t, d, snib.Detached(), snib.TTL(time.Hour))
	lock := acquire(t, detached, "a")
	extended, err := detached.Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt by a Locker that is Detached", err, nil)
	adopted, err := open(t, store.Open()).Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt", err, nil)
	wantErr(t, "late SetLabel", extended.SetLabel(t.Context(), "half"), errors.ErrUnsupported)
	if n := d.Calls(fault.SetHolder); n > 0 {
		t.Errorf("the Locker that is Detached has sent its holder %d times", n)
	}
	_, err = open(t, store.Open()).Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "second Adopt", err, snib.ErrInvalid)
	release(t, adopted)
}

// TestAdoptWithoutAnswer loses the answer by which the store confirms the new holder. The hold may
// be broken then.
func TestAdoptWithoutAnswer(t *testing.T) {
	store := new(memlock.Store)
	lock := acquire(t, open(t, store.Open(), snib.Detached(), snib.TTL(time.Hour)), "a")
	noAnswer := fault.Rule{Op: fault.SetHolder, Effect: fault.Drop, Err: snib.ErrUnavailable}
	l := open(t, fault.Wrap(store.Open(), fault.Plan{Rules: []fault.Rule{noAnswer}}))
	_, err := l.Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt without an answer", err, snib.ErrUnavailable)
	_, err = l.Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt again", err, snib.ErrInvalid)
	wantErr(t, "Break", l.Break(t.Context(), "a", lock.ID()), nil)
}

// A store may show no ids, as a lock service does to those who are no administrators. That the hold
// exists is then not denied.
func TestAdoptWithoutSight(t *testing.T) {
	store := new(memlock.Store)
	lock := acquire(t, open(t, store.Open(), snib.Detached(), snib.TTL(time.Hour)), "a")
	blind := open(t, blindDriver{store.Open()})
	_, err := blind.Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt of a hold whose id is not shown", err, snib.ErrInvalid)
	_, err = blind.Adopt(t.Context(), "a", "another")
	wantErr(t, "Adopt of no hold", err, snib.ErrLost)

	// Neither is it if the context ends with the loss of another hold.
	ctx, cancel := context.WithCancelCause(t.Context())
	d := newSpy(store)
	d.renew = func(ctx context.Context, _ []driver.Lease, _ func() []driver.Renewal) []driver.Renewal {
		cancel(snib.ErrLost)
		return []driver.Renewal{{Err: context.Cause(ctx)}}
	}
	_, err = open(t, blindDriver{d}).Adopt(ctx, "a", lock.ID())
	wantErr(t, "Adopt with a context that ends", err, context.Canceled)
	if strings.Contains(err.Error(), "no hold") {
		t.Errorf("Adopt = %v, although the store has not said so", err)
	}
	release(t, lock)
}

// A blindDriver shows no ids.
type blindDriver struct{ driver.Driver }

func (d blindDriver) Status(ctx context.Context, name string) (driver.Status, error) {
	st, err := d.Driver.Status(ctx, name)
	for i := range st.Holders {
		st.Holders[i].ID = ""
	}
	return st, err
}

// Adopting a hold never shortens its lease.
func TestAdoptDoesNotShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		lock := acquire(t, open(t, store.Open(), snib.Detached(), snib.TTL(time.Hour)), "a")
		_, err := open(t, store.Open(), snib.Detached(), snib.TTL(time.Minute)).Adopt(t.Context(), "a", lock.ID())
		wantErr(t, "Adopt", err, nil)
		began := time.Now()
		release(t, acquire(t, open(t, store.Open()), "a"))
		if got := time.Since(began); got != time.Hour {
			t.Errorf("the lock was free after %v, want an hour", got)
		}
	})
}

// Neither has an Adopt succeeded whose answer comes when the hold is over. The hold is not lost by
// that: another Adopt gets it.
func TestLateAdoptIsNoHold(t *testing.T) {
	late := fault.Rule{Op: fault.Renew, Call: 1, After: time.Second}
	for _, adopter := range [][]snib.Option{{snib.Detached()}, nil} {
		bubble(t, fmt.Sprintf("Detached=%t", adopter != nil), func(t *testing.T) {
			store := new(memlock.Store)
			lock := acquire(t, open(t, store.Open(), snib.Detached(), snib.TTL(time.Hour)), "a")
			d := fault.Wrap(store.Open(), fault.Plan{Rules: []fault.Rule{late}})
			l := open(t, d, append(adopter, snib.TTL(time.Second))...)
			_, err := l.Adopt(t.Context(), "a", lock.ID())
			wantErr(t, "Adopt", err, snib.ErrUnavailable)
			adopted, err := l.Adopt(t.Context(), "a", lock.ID())
			wantErr(t, "second Adopt", err, nil)
			release(t, adopted)
		})
	}
}

// If the store is slow to confirm the new holder, whom nobody can follow, the lease is renewed
// again.
func TestAdoptOfSlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		lock := acquire(t, open(t, store.Open(), snib.Detached(), snib.TTL(time.Hour)), "a")
		slow := fault.Rule{Op: fault.SetHolder, After: 2 * time.Second}
		l := open(t, fault.Wrap(store.Open(), fault.Plan{Rules: []fault.Rule{slow}}), snib.TTL(time.Second))
		adopted, err := l.Adopt(t.Context(), "a", lock.ID())
		wantErr(t, "Adopt", err, nil)
		time.Sleep(2 * time.Hour)
		release(t, adopted)
	})
}

// A hold that ends while it is adopted is not replaced by a new one.
func TestAdoptOfWhatEndsMeanwhile(t *testing.T) {
	store := new(memlock.Store)
	lock := acquire(t, open(t, store.Open(), snib.Detached()), "a")
	d := newSpy(store)
	d.renew = func(_ context.Context, _ []driver.Lease, send func() []driver.Renewal) []driver.Renewal {
		release(t, lock) // after the Status that Adopt has asked for
		return send()
	}
	_, err := open(t, d).Adopt(t.Context(), "a", lock.ID())
	wantErr(t, "Adopt", err, snib.ErrLost)
	release(t, acquire(t, open(t, store.Open(), snib.NoWait()), "a"))
}
