package snib_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

func TestReleaseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.release = func(ctx context.Context, _ func() error) error {
			<-ctx.Done() // the store does not answer
			return ctx.Err()
		}
		l := open(t, d)
		lock := acquire(t, l, "a")
		began := time.Now()
		wantErr(t, "Release", lock.Release(), snib.ErrUnreleased)
		if got, want := time.Since(began), 5*time.Second; got != want {
			t.Errorf("Release took %v, want %v", got, want)
		}
		d.release = nil
		release(t, acquire(t, l, "a")) // it lapsed
		if got := time.Since(began); got > ttl {
			t.Errorf("the lock was free after %v, want at most a TTL of %v", got, ttl)
		}
	})
}

// The confirmation of a lease that is about to be handed over and the release share one timeout.
func TestReleaseTimeoutWithWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := fault.Wrap(store.Open(), fault.Plan{})
		l := open(t, d)
		first := acquire(t, l, "a")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		locks := make(chan *snib.Lock, 2)
		for range 2 { // the first one gets a lease with a token for the second
			go func() {
				if lock, err := l.Acquire(ctx, "a"); err == nil {
					locks <- lock
				}
			}()
		}
		synctest.Wait()
		release(t, first)
		lock := <-locks
		time.Sleep(time.Second) // the last confirmation is too old for a hand-over
		d.Sever(fault.Hang)
		began := time.Now()
		wantErr(t, "Release", lock.Release(), snib.ErrUnreleased)
		if got, want := time.Since(began), 5*time.Second; got > want {
			t.Errorf("Release took %v, want at most %v", got, want)
		}
		cancel()
	})
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open(), snib.MinHold(time.Minute)), open(t, store.Open())
		began := time.Now()
		release(t, acquire(t, a, "tick"))
		if time.Since(began) != 0 {
			t.Errorf("Release waited for %v", time.Since(began))
		}
		_, err := b.TryAcquire(t.Context(), "tick")
		wantErr(t, "TryAcquire on the host with the slow clock", err, snib.ErrHeld)
		_, err = a.TryAcquire(t.Context(), "tick")
		wantErr(t, "TryAcquire in the same process", err, snib.ErrHeld)
		release(t, acquire(t, b, "tick"))
		if got := time.Since(began); got != time.Minute {
			t.Errorf("the lock was free after %v, want a minute", got)
		}
	})
}

// After a lost hold the lock stays closed for the delay. After a released one it does not.
func TestLockDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl, delay = 10 * time.Second, time.Minute
		store := new(memlock.Store)
		d := newSpy(store)
		detached := false
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			detached = req.Detached
			return send()
		}
		a, b := open(t, d, snib.TTL(ttl), snib.LockDelay(delay)), open(t, store.Open())

		lock := acquire(t, a, "a")
		time.Sleep(time.Hour)
		if isClosed(lock.Lost()) || !detached {
			t.Errorf("lost: %v; asked for a lease that outlives the process: %v", isClosed(lock.Lost()), detached)
		}
		release(t, lock)
		began := time.Now()
		release(t, acquire(t, b, "a"))
		if got := time.Since(began); got != 0 {
			t.Errorf("after Release the lock was closed for %v", got)
		}

		d.renew = unreachable
		lock, began = acquire(t, a, "a"), time.Now()
		<-lock.Lost()
		lost := time.Since(began)
		if lost > ttl || lost < ttl*9/10 {
			t.Errorf("the hold was lost after %v, want little less than %v", lost, ttl)
		}
		wantErr(t, "Release of what was lost", lock.Release(), snib.ErrLost)
		release(t, acquire(t, b, "a"))
		if got := time.Since(began); got != ttl+delay {
			t.Errorf("the lock was closed for %v, want %v", got, ttl+delay)
		}
	})
}

// Where a lease ends with its session, the delay is subtracted from the time that the hold lasts.
func TestLockDelayOfSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.info = func(i driver.Info) driver.Info {
			i.Tenure, i.SessionTTL = driver.TenureSession, time.Minute
			return i
		}
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if req.Detached {
				t.Error("asked for a Detached lease in a session")
			}
			l, err := send()
			return &sessionLease{l, time.Minute}, err
		}
		_, err := snib.New(d, snib.LockDelay(time.Minute))
		wantErr(t, "New with a delay as long as the session", err, snib.ErrInvalid)
		lock := acquire(t, open(t, d, snib.LockDelay(40*time.Second)), "a")
		if got := lock.Validity(); got > 20*time.Second || got < 19*time.Second {
			t.Errorf("Validity = %v, want little less than 20s", got)
		}
		release(t, lock)
	})
}
