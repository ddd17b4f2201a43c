package snib_test

import (
	"context"
	"errors"
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
		owner, token := lock.Owner(), lock.Token()
		wantErr(t, "Close", first.Close(), nil)
		wantErr(t, "cause after Close", context.Cause(lock.Context()), snib.ErrClosed)

		other := open(t, store.Open(), snib.Prefix("p/"), snib.TTL(ttl))
		_, err = other.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire while it is held", err, snib.ErrHeld)
		adopted, err := other.Adopt(t.Context(), "a", owner)
		wantErr(t, "Adopt", err, nil)
		if adopted.Token() != token || adopted.Owner() != owner || adopted.Name() != "p/a" {
			t.Errorf("Adopt = token %d of %q, want %d of %q", adopted.Token(), adopted.Name(), token, "p/a")
		}
		time.Sleep(time.Hour) // it is renewed now
		wantErr(t, "end of the context", adopted.Context().Err(), nil)
		release(t, adopted)
		release(t, acquire(t, other, "a"))
	})
}

// A detached hold ends with its TTL, counted from the last Adopt.
func TestDetachedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		l := open(t, d, snib.TTL(time.Hour), snib.Detached())
		owner := acquire(t, l, "a").Owner()
		began := time.Now()
		time.Sleep(40 * time.Minute)
		again, err := l.Adopt(t.Context(), "a", owner)
		wantErr(t, "Adopt", err, nil)
		<-again.Lost()
		if got, want := time.Since(began), 100*time.Minute; got < want-2*time.Minute || got >= want {
			t.Errorf("the hold ended after %v, want little less than %v", got, want)
		}
		release(t, acquire(t, open(t, store.Open()), "a"))
		if got, want := time.Since(began), 100*time.Minute; got != want {
			t.Errorf("the lock was free after %v, want %v", got, want)
		}
		if len(d.batches) != 0 {
			t.Errorf("the hold was renewed: %v", d.batches)
		}
		_, err = l.Adopt(t.Context(), "a", owner)
		wantErr(t, "Adopt after the end", err, snib.ErrLost)
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
			adopted, err := other.Adopt(t.Context(), "a", lock.Owner())
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

func TestDetachedRefused(t *testing.T) {
	d := newSpy(new(memlock.Store))
	d.info = func(i driver.Info) driver.Info {
		i.Tenure = driver.TenureSession
		return i
	}
	_, err := snib.New(d, snib.Detached())
	wantErr(t, "New with Detached in a session", err, snib.ErrInvalid)
}

func TestAdoptFails(t *testing.T) {
	store := new(memlock.Store)
	holder := open(t, store.Open(), snib.Owner("holder"))
	lock := acquire(t, holder, "a")
	reader := acquire(t, open(t, store.Open(), snib.Shared(), snib.Owner("reader")), "r")
	untold := newSpy(store)
	untold.info = func(i driver.Info) driver.Info {
		i.Fencing = driver.FencingNone
		return i
	}
	gone := fault.Wrap(store.Open(), fault.Plan{})
	gone.Sever(fault.Fail)
	cancelled, cancel := context.WithCancelCause(t.Context())
	errStop := errors.New("stop")
	cancel(errStop)
	tests := []struct {
		name        string
		l           *snib.Locker
		ctx         context.Context
		lock, owner string
		want        error
	}{
		{"Free", open(t, store.Open()), t.Context(), "free", "holder", snib.ErrLost},
		{"AnotherOwner", open(t, store.Open()), t.Context(), "a", "other", snib.ErrLost},
		{"NoOwner", open(t, store.Open()), t.Context(), "a", "", snib.ErrInvalid},
		{"NoName", open(t, store.Open()), t.Context(), "", "holder", snib.ErrInvalid},
		{"Kind", open(t, store.Open()), t.Context(), "r", "reader", snib.ErrKind},
		{"Slots", open(t, store.Open(), snib.Slots(2)), t.Context(), "a", "holder", snib.ErrKind},
		{"NoTokens", open(t, untold), t.Context(), "a", "holder", snib.ErrInvalid},
		{"StoreGone", open(t, gone), t.Context(), "a", "holder", fault.ErrSevered},
		{"Cancelled", open(t, store.Open()), cancelled, "a", "holder", errStop},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.l.Adopt(tt.ctx, tt.lock, tt.owner)
			wantErr(t, "Adopt", err, tt.want)
		})
	}
	if st, err := holder.Status(t.Context(), "free"); err != nil || len(st.Holders) > 0 {
		t.Errorf("Adopt of a lock that was free left %+v, %v", st, err)
	}
	release(t, lock)
	release(t, reader)
}

// A hold that ends while it is adopted is not replaced by a new one.
func TestAdoptOfWhatEndsMeanwhile(t *testing.T) {
	store := new(memlock.Store)
	lock := acquire(t, open(t, store.Open()), "a")
	d := newSpy(store)
	d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		release(t, lock) // after the Status that Adopt has asked for
		return send()
	}
	_, err := open(t, d).Adopt(t.Context(), "a", lock.Owner())
	wantErr(t, "Adopt", err, snib.ErrLost)
	release(t, acquire(t, open(t, store.Open(), snib.NoWait()), "a"))
}
