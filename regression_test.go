package snib_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// Regression tests for defects that reviews found.

// A slow Trace neither delays a loss nor prevents renewals.
func TestSlowTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		trace := &snib.Trace{Renewed: func(snib.RenewedEvent) { time.Sleep(time.Second) }}
		l := open(t, store.Open(), snib.Tracing(trace))
		const holds = 300
		var locks []*snib.Lock
		for i := range holds {
			locks = append(locks, acquire(t, l, fmt.Sprint(i)))
		}
		broken := locks[holds-1]
		if err := store.Open().Break(t.Context(), broken.Name(), broken.Owner(), broken.Token()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-broken.Context().Done()
		if got := time.Since(began); got > ttl/3 {
			t.Errorf("told after %v, want %v at most", got, ttl/3)
		}
		time.Sleep(2 * time.Minute)
		for _, lock := range locks[:holds-1] {
			if isClosed(lock.Lost()) {
				t.Fatalf("lost though the store renewed it: %v", context.Cause(lock.Context()))
			}
		}
		wantErr(t, "Close", l.Close(), nil)
		time.Sleep(time.Hour) // let the Trace finish
	})
}

// All acquisitions of one owner share a hold, which ends with the last of them.
func TestOwnerSharesOneHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l, other := open(t, store.Open(), snib.Owner("x")), open(t, store.Open())
		one, two := acquire(t, l, "a"), acquire(t, l, "a")
		release(t, one)
		_, err := other.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire while one of two is held", err, snib.ErrHeld)
		time.Sleep(2 * ttl)
		if isClosed(two.Lost()) {
			t.Errorf("the second was lost with the release of the first: %v", context.Cause(two.Context()))
		}
		release(t, two)
		release(t, acquire(t, other, "a"))
	})
}

// An acquisition of an owner that gives up does not release what the owner holds.
func TestOwnerGivesUpOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		l, other := open(t, d, snib.Owner("x")), open(t, store.Open())
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if calls.Add(1) == 1 { // the first request is answered last
				time.Sleep(time.Second)
				defer cancel()
			}
			return send()
		}
		first := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "a")
			first <- err
		}()
		synctest.Wait()
		held := acquire(t, l, "a")
		wantErr(t, "the one that was given up", <-first, context.Canceled)
		_, err := other.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire by another", err, snib.ErrHeld)
		release(t, held)
	})
}

// A request of an owner that the driver gives up may take along the lease that another request of
// the owner got at the same time. The holder learns that at once.
func TestOwnerLosesByGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		l := open(t, d, snib.Owner("x"))
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		d.acquire = func(ctx context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if calls.Add(1) > 1 {
				return send()
			}
			time.Sleep(time.Second)
			lease, err := send()
			if err != nil {
				return nil, err
			}
			cancel()
			if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
				return nil, err
			}
			return nil, context.Cause(ctx)
		}
		gaveUp := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "a")
			gaveUp <- err
		}()
		synctest.Wait()
		held := acquire(t, l, "a")
		wantErr(t, "the request that was given up", <-gaveUp, context.Canceled)
		synctest.Wait()
		if !isClosed(held.Lost()) {
			t.Error("the holder is not told that its lease is gone")
		}
	})
}

// The loss of any lease of an owner ends the hold that its acquisitions share.
func TestOwnerLoss(t *testing.T) {
	for _, which := range []string{"first", "second"} {
		t.Run(which, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
				l := open(t, d, snib.Owner("x"))
				onLost := make(map[string]func(error))
				var calls atomic.Int64
				d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
					if calls.Add(1) == 1 {
						onLost["second"] = req.OnLost
						time.Sleep(time.Second) // the first request is answered last
					} else {
						onLost["first"] = req.OnLost
					}
					return send()
				}
				got := make(chan *snib.Lock)
				go func() { got <- acquire(t, l, "a") }()
				synctest.Wait()
				locks := []*snib.Lock{acquire(t, l, "a"), <-got}
				onLost[which](driver.ErrLost)
				for i, lock := range locks {
					if !isClosed(lock.Lost()) {
						t.Errorf("lock %d is not lost", i)
					}
				}
			})
		})
	}
}

func TestOwnerChecksKindAndToken(t *testing.T) {
	store := new(memlock.Store)
	l, other := open(t, store.Open(), snib.Owner("x")), open(t, store.Open())
	shared := acquire(t, l.With(snib.Shared()), "a")
	reader := acquire(t, other.With(snib.Shared()), "a")
	_, err := l.TryAcquire(t.Context(), "a")
	wantErr(t, "exclusive, for an owner that shares", err, snib.ErrNested)
	_, err = open(t, store.Open(), snib.Owner("x")).TryAcquire(t.Context(), "a")
	wantErr(t, "the same from another process", err, snib.ErrHeld)
	_, err = l.With(snib.Slots(3)).TryAcquire(t.Context(), "a")
	wantErr(t, "slots, for an owner that shares", err, snib.ErrKind)
	release(t, reader)
	release(t, shared)

	d := newSpy(store)
	fenced := open(t, d, snib.Owner("y"), snib.RequireFencing(snib.FencingClock))
	first := acquire(t, fenced, "b")
	release(t, first)
	d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		l, err := send()
		return &oldTokenLease{l, first.Token() - 1}, err
	}
	_, err = fenced.Acquire(t.Context(), "b")
	wantErr(t, "a token that went back, for an owner", err, snib.ErrRegressed)
}

// A local run ends for waiters that wait in the store, outside the local queue.
func TestLocalRunEndsForThoseOutside(t *testing.T) {
	for _, opt := range []snib.Option{snib.Owner("x"), snib.Fair()} {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, memlock.New())
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			var holds atomic.Int64
			for range 4 {
				wg.Go(func() {
					for ctx.Err() == nil {
						lock := acquire(t, l, "a")
						holds.Add(1)
						time.Sleep(time.Millisecond)
						release(t, lock)
					}
				})
			}
			time.Sleep(time.Second)
			before := holds.Load()
			lock := acquire(t, l.With(opt), "a")
			if n := holds.Load() - before; n > 10 {
				t.Errorf("%d holds went past", n)
			}
			release(t, lock)
			cancel()
			wg.Wait()
		})
	}
}

// Tokens are reserved only for waiters that can take the lease over: unused tokens put the
// store's tokens ahead of its clock.
func TestReservesNoTokensInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		var requested []int
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			requested = append(requested, req.Tokens)
			return send()
		}
		l := open(t, d)
		held := acquire(t, l, "a")
		var wg sync.WaitGroup
		for i := range 40 {
			other := l
			if i > 0 {
				other = l.With(snib.TTL(time.Minute), snib.MinHold(1))
			}
			wg.Go(func() { release(t, acquire(t, other, "a")) })
			synctest.Wait()
		}
		release(t, held)
		wg.Wait()
		for i, n := range requested {
			if n > 1 {
				t.Errorf("request %d of %d reserved %d tokens", i, len(requested), n)
			}
		}
	})
}

// The next holder in the process begins only after the contexts of the previous hold have ended.
func TestHandOverAfterContextsEnd(t *testing.T) {
	l := open(t, memlock.New())
	one := acquire(t, l, "a")
	release(t, one)
	const children = 50_000
	var alive []context.Context
	var wg sync.WaitGroup
	held := acquire(t, l, "a")
	waiting := make(chan struct{})
	for range 2 { // the first of them makes the store reserve a token for the second
		wg.Go(func() {
			waiting <- struct{}{}
			lock := acquire(t, l, "a")
			for i, ctx := range alive {
				if ctx.Err() == nil {
					t.Errorf("context %d of %d of the last hold is alive", i, len(alive))
					break
				}
			}
			alive = nil
			for range children {
				ctx, cancel := context.WithCancel(lock.Context())
				alive = append(alive, ctx)
				defer cancel()
			}
			release(t, lock)
		})
		<-waiting
	}
	release(t, held)
	wg.Wait()
}

// Release and the context agree about how a hold ended, even if it is lost at the same moment.
func TestReleaseAndCauseAgree(t *testing.T) {
	for range 5 {
		l, err := snib.New(memlock.New())
		wantErr(t, "New", err, nil)
		slow, quick := acquire(t, l, "slow"), acquire(t, l, "quick")
		ctx := quick.Context()
		for range 50_000 { // its contexts take long to end, and end first
			_, cancel := context.WithCancel(slow.Context())
			defer cancel()
		}
		released := make(chan error)
		go func() {
			for quick.Validity() > 0 {
				runtime.Gosched()
			}
			released <- quick.Release()
		}()
		wantErr(t, "Close", l.Close(), nil)
		wantErr(t, "Release", <-released, snib.ErrLost)
		wantErr(t, "cause", context.Cause(ctx), snib.ErrLost)
	}
}

func TestLeakedLocksAreReported(t *testing.T) {
	leaks := make(chan snib.LeakedEvent, 2)
	trace := &snib.Trace{Leaked: func(e snib.LeakedEvent) { leaks <- e }}
	l := open(t, memlock.New(), snib.TrackLeaks(), snib.Tracing(trace))
	func() {
		_, err := l.AcquireAll(t.Context(), "a", "b")
		wantErr(t, "AcquireAll", err, nil)
	}()
	for found := 0; found < 2; {
		runtime.GC()
		select {
		case <-leaks:
			found++
		case <-time.After(10 * time.Millisecond): // the time of a collection is not known
		}
	}
}

// If a waiter gives up at the hand-over, nobody had the hold, and no Trace is called.
func TestGiveUpAtHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var acquired, released atomic.Int64
		trace := &snib.Trace{
			Acquired: func(snib.AcquiredEvent) { acquired.Add(1) }, Released: func(snib.ReleasedEvent) { released.Add(1) },
		}
		d := newSpy(new(memlock.Store))
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			l, err := send()
			return &manyTokensLease{l}, err
		}
		l := open(t, d, snib.Tracing(trace))
		for range 100 {
			held := acquire(t, l, "a")
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if lock, err := l.Acquire(ctx, "a"); err == nil {
					release(t, lock)
				}
			})
			synctest.Wait()
			release(t, held)
			cancel() // mostly before the waiter has run
			wg.Wait()
		}
		if acquired.Load() != released.Load() {
			t.Errorf("told of %d acquired and %d released", acquired.Load(), released.Load())
		}
	})
}

// Infinite durations don't overflow into the past.
func TestEndlessDurations(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		lock := acquire(t, open(t, store.Open(), snib.MaxHold(endless)), "a")
		time.Sleep(time.Hour)
		release(t, lock)
		release(t, acquire(t, open(t, store.Open(), snib.TTL(endless)), "b"))
		release(t, acquire(t, open(t, store.Open(), snib.MinHold(endless)), "c"))
		_, err := open(t, store.Open()).TryAcquire(t.Context(), "c")
		if !errors.Is(err, snib.ErrHeld) {
			t.Errorf("TryAcquire within a MinHold without end = %v", err)
		}
	})
}
