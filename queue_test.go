package snib_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// Goroutines of one process queue in it, first in first out, and only the one at the
// head sends requests to the store.
func TestOneContenderPerProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		l := open(t, d)
		foreign := acquire(t, open(t, store.Open()), "a")
		const waiters = 100
		var order []int
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				lock := acquire(t, l, "a")
				order = append(order, i) // guarded by the lock
				release(t, lock)
			})
			synctest.Wait() // they arrive in order
		}
		if n, _ := d.count(); n != 1 {
			t.Errorf("%d waiters asked the store %d times, want once", waiters, n)
		}
		release(t, foreign)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if n, _ := d.count(); n > 3 {
			t.Errorf("%d hand-overs asked the store %d times, want at most 3", waiters, n)
		}
	})
}

// Fair waiters all wait in the store's queue, so the order of arrival holds across processes.
func TestFairAcrossProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		a, b := open(t, store.Open(), snib.Fair()), open(t, store.Open(), snib.Fair())
		held := acquire(t, a, "a")
		var order []int
		var wg sync.WaitGroup
		for i := range 10 {
			l := []*snib.Locker{a, b}[i%2]
			wg.Go(func() {
				lock := acquire(t, l, "a")
				order = append(order, i)
				release(t, lock)
			})
			synctest.Wait()
		}
		release(t, held)
		wg.Wait()
		if got, want := fmt.Sprint(order), "[0 1 2 3 4 5 6 7 8 9]"; got != want {
			t.Errorf("served in the order %s, want %s", got, want)
		}
	})
}

// A waiter that gives up just when it becomes the head, or gets a hold, passes that on.
func TestCancelRacesHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open())
		for range 200 {
			held := acquire(t, l, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					if lock, err := l.Acquire(ctx, "a"); err == nil {
						release(t, lock)
					}
				})
			}
			wg.Go(func() { release(t, acquire(t, l, "a")) })
			synctest.Wait()
			wg.Go(func() { release(t, held) })
			wg.Go(cancel)
			wg.Wait() // the fourth was served; otherwise the bubble deadlocks
			if st, err := store.Open().Status(t.Context(), "a"); err != nil || len(st.Holders)+len(st.Waiters) > 0 {
				t.Fatalf("left behind: %+v, %v", st, err)
			}
		}
	})
}

// A goroutine whose context ends just when it becomes the head makes the next waiter the head.
// Its context reports the end by Err alone, so that becoming the head certainly comes first.
func TestTurnComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, new(memlock.Store).Open())
		// With another TTL the hold is not handed over: the waiter becomes the head.
		other := l.With(snib.TTL(time.Minute))
		held := acquire(t, l, "a")
		ctx := &silentContext{Context: t.Context()}
		late, next := make(chan error, 1), make(chan *snib.Lock, 1)
		go func() {
			_, err := other.Acquire(ctx, "a")
			late <- err
		}()
		synctest.Wait()
		go func() { next <- acquire(t, other, "a") }()
		synctest.Wait()
		ctx.ended.Store(true)
		release(t, held)
		wantErr(t, "Acquire", <-late, context.Canceled)
		release(t, <-next) // otherwise the bubble deadlocks
	})
}

// silentContext is a context that ends without closing Done.
type silentContext struct {
	context.Context
	ended atomic.Bool
}

func (c *silentContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// The next waiter becomes the head when the store does not grant, and when a hold is lost.
func TestTurnIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		l := open(t, d)
		d.acquire = func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
			time.Sleep(time.Second)
			return nil, errUnreachable
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := l.Acquire(t.Context(), "a")
				errs <- err
			}()
		}
		wantErr(t, "first", <-errs, errUnreachable)
		wantErr(t, "second", <-errs, errUnreachable)

		d.acquire, d.renew = nil, unreachable
		lost := acquire(t, l, "a")
		next := acquire(t, l, "a") // becomes the head after the loss, and waits for the store
		if !isClosed(lost.Lost()) {
			t.Error("two holds at a time")
		}
		d.renew = nil
		wantErr(t, "Release of the lost one", lost.Release(), snib.ErrLost)
		if isClosed(next.Lost()) {
			t.Error("the late release ended the next hold")
		}
		release(t, next)
	})
}

// A goroutine that queues while the store is unavailable to the head does not get ErrHeld.
func TestOutageBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.acquire = unavailableUntil(time.Now().Add(time.Hour), errDown)
		l := open(t, d)
		go func() { _, _ = l.Acquire(t.Context(), "a") }()
		synctest.Wait()
		_, err := l.With(snib.MaxWait(5*time.Second)).Acquire(t.Context(), "a")
		wantErr(t, "Acquire", err, snib.ErrUnavailable)
		if errors.Is(err, snib.ErrHeld) {
			t.Errorf("Acquire = %v, which matches ErrHeld", err)
		}
	})
}

// Goroutines that queue one after the other reuse a waiter, but not its options.
func TestWaiterIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			l, err := send()
			return &manyTokensLease{l}, err
		}
		l := open(t, d)
		held := acquire(t, l, "a")
		for i, next := range []*snib.Locker{l, l, l.With(snib.TTL(time.Hour)), l} {
			done := make(chan *snib.Lock)
			go func() { done <- acquire(t, next, "a") }()
			synctest.Wait()
			release(t, held)
			held = <-done
			if got, want := held.Validity() > time.Minute, i == 2; got != want {
				t.Errorf("hold %d is valid for %v", i, held.Validity())
			}
		}
		release(t, held)
		if n, _ := d.count(); n != 3 {
			t.Errorf("the store was asked %d times, want 3", n)
		}
	})
}
