package snib_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// An outage lasts a minute for all goroutines that queue for a name, and not a minute for each. One
// that queues during the outage has a minute of its own.
func TestOutageOfQueue(t *testing.T) {
	const minute = driver.RetryTimeout
	tests := []struct {
		name  string
		retry time.Duration   // RetryTimeout
		takes time.Duration   // duration of each request
		begin []time.Duration // when the acquisitions begin
	}{
		{"Together", minute, 0, make([]time.Duration, 100)},
		{"Slow", minute, driver.AnswerTimeout, make([]time.Duration, 100)},
		{"Hasty", time.Second, driver.AnswerTimeout, make([]time.Duration, 100)},
		{"Later", minute, 0, []time.Duration{0, 10 * time.Second, 40 * time.Second, 50 * time.Second}},
		{"Chain", minute, 0, []time.Duration{0, minute - time.Nanosecond, 2*minute - 2}},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
				time.Sleep(tt.takes)
				return nil, errDown
			}
			l := open(t, d, snib.RetryTimeout(tt.retry))
			var wg sync.WaitGroup
			for _, begin := range tt.begin {
				wg.Go(func() {
					time.Sleep(begin)
					began := time.Now()
					_, err := l.Acquire(t.Context(), "a")
					if !errors.Is(err, snib.ErrUnavailable) {
						t.Errorf("Acquire = %v, want ErrUnavailable", err)
					}
					if took := time.Since(began); took < tt.retry || took > tt.retry+tt.takes {
						t.Errorf("Acquire that began at %v took %v, want %v to %v", begin, took, tt.retry, tt.retry+tt.takes)
					}
				})
			}
			wg.Wait()
		})
	}
}

// An outage that is over takes nothing from the minute of those that wait during the next one.
func TestOutageOfQueueEnds(t *testing.T) {
	const minute = driver.RetryTimeout
	type step struct {
		takes time.Duration // if negative, the head is cancelled after this time
		err   error         // nil: as memlock answers
	}
	refused := errors.New("refused")
	tests := []struct {
		name  string
		steps []step        // of the requests; later ones fail at once with errDown
		fails time.Duration // when the last of three acquisitions fails
	}{
		{"Never", nil, minute},
		{"Granted", []step{{50 * time.Second, errDown}, {0, nil}}, 2*minute - 10*time.Second},
		{"Refused", []step{{50 * time.Second, errDown}, {0, refused}}, 2*minute - 10*time.Second},
		{"Cancelled", []step{{0, errDown}, {-time.Hour, nil}}, time.Hour + minute},
		{"CancelledWhileUnavailable", []step{{0, errDown}, {-time.Hour, errDown}}, time.Hour + minute},
		{"CancelledSoon", []step{{0, errDown}, {-4 * time.Second, errDown}}, minute},
		{"CancelledAtTheEnd", []step{{minute - time.Second, errDown}, {-2 * time.Second, errDown}}, minute},
		{"Queued", []step{{time.Hour, errDown}, {time.Second, errDown}}, time.Hour + time.Second},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d := newSpy(new(memlock.Store))
			steps := tt.steps
			d.acquire = func(ctx context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				if len(steps) == 0 {
					return nil, errDown
				}
				s := steps[0]
				steps = steps[1:]
				time.Sleep(s.takes.Abs())
				if s.takes < 0 {
					cancel()
					return nil, errors.Join(s.err, context.Cause(ctx))
				}
				if s.err != nil {
					return nil, s.err
				}
				return send()
			}
			l := open(t, d)
			var wg sync.WaitGroup
			for i := range 3 {
				ctx := ctx
				if i > 0 {
					ctx = t.Context()
				}
				wg.Go(func() {
					lock, err := l.Acquire(ctx, "a")
					if err == nil {
						lock.Release()
					}
					if took := time.Since(began); i == 2 && (took < tt.fails || took > tt.fails+2*time.Second) {
						t.Errorf("the last Acquire = %v after %v, want about %v", err, took, tt.fails)
					}
					if i == 2 && (!errors.Is(err, snib.ErrUnavailable) || errors.Is(err, context.Canceled)) {
						t.Errorf("the last Acquire = %v, want ErrUnavailable alone", err)
					}
				})
				synctest.Wait()
			}
			wg.Wait()
		})
	}
}

// A goroutine that queues behind a holder gets ErrHeld, although the store was unavailable to a
// goroutine that has given up since.
func TestHeldAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		calls := 0
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if calls++; calls == 1 {
				return nil, errDown
			}
			return send()
		}
		l := open(t, d)
		soon := l.With(snib.MaxWait(time.Millisecond)) // ends during the first pause
		go func() { _, _ = soon.Acquire(t.Context(), "a") }()
		synctest.Wait()
		held := acquire(t, l, "a")
		_, err := soon.Acquire(t.Context(), "a")
		wantErr(t, "Acquire", err, snib.ErrHeld)
		release(t, held)
	})
}

// TestWaitBehindHead checks what a goroutine is told whose wait ends while another one of the
// process waits for the store: that the lock is held only if the store, or our own queue, has said
// so since it began to wait.
func TestWaitBehindHead(t *testing.T) {
	tests := []struct {
		name  string
		tells []any // what the head hears, a second after each other: an error, nil, or "nothing"
		held  bool
		says  string
	}{
		{name: "NoAnswer", tells: []any{"nothing"}, says: "no answer to another goroutine"},
		{name: "Held", tells: []any{"nothing", nil}, held: true},
		{name: "HeldAgain", tells: []any{errDown, nil}, held: true},
		{name: "Outage", tells: []any{nil, errDown}, says: "connection refused"},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
				for _, tell := range tt.tells {
					time.Sleep(time.Second)
					if err, _ := tell.(error); tell == nil || err != nil {
						req.NoteWait(err)
					}
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			l := open(t, d)
			ctx, cancel := context.WithCancel(t.Context())
			go l.Acquire(ctx, "a")
			synctest.Wait()
			_, err := l.With(snib.MaxWait(5*time.Second)).Acquire(t.Context(), "a")
			if errors.Is(err, snib.ErrHeld) != tt.held || errors.Is(err, snib.ErrUnavailable) == tt.held {
				t.Errorf("Acquire = %v, want ErrHeld: %v", err, tt.held)
			}
			if !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "waited for 5s") {
				t.Errorf("Acquire = %v; it does not say %q, and how long it waited", err, tt.says)
			}
			cancel()
		})
	}
}

// TestWaitBehindHeadAfterHold is TestWaitBehindHead after a hold of this process, behind which only
// the first of two goroutines waited.
func TestWaitBehindHeadAfterHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		l := open(t, d)
		lock := acquire(t, l, "a")
		d.acquire = func(ctx context.Context, _ driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wait := func(l *snib.Locker) <-chan error {
			failed := make(chan error, 1)
			go func() {
				_, err := l.Acquire(ctx, "a")
				failed <- err
			}()
			synctest.Wait()
			return failed
		}
		l = l.With(snib.Label("not the next of a run"))
		wait(l)
		first := wait(l.With(snib.MaxWait(5 * time.Second)))
		release(t, lock)
		time.Sleep(time.Second)
		second := wait(l.With(snib.MaxWait(5 * time.Second)))
		if err := <-first; !errors.Is(err, snib.ErrHeld) || errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("Acquire that waited behind the hold = %v, want ErrHeld", err)
		}
		if err := <-second; errors.Is(err, snib.ErrHeld) || !errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("Acquire that waited behind nobody who holds the lock = %v, want ErrUnavailable", err)
		}
	})
}
