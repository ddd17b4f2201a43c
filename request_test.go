package snib_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// errDown is what a driver answers while its store is unavailable.
var errDown = fmt.Errorf("%w: connection refused", driver.ErrUnavailable)

// errFull is what it answers while it has no connection left.
var errFull = fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)

// down makes a driver's store unavailable until a moment.
func down(until time.Time, answer error) func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
	return func(_ context.Context, _ driver.Request, ask func() (driver.Lease, error)) (driver.Lease, error) {
		if time.Now().Before(until) {
			return nil, answer
		}
		return ask()
	}
}

// An acquisition that may wait survives an outage of the store of up to RetryTimeout, and any time
// in which it is full; one that must not wait does not.
func TestOutage(t *testing.T) {
	tests := []struct {
		name       string
		down, wait time.Duration // how long the store is unavailable; MaxWait, or the deadline if that is negative
		answer     error         // while it is; errDown by default
		noWait     bool
		want       error
		never      error // what the error must not match
		within     time.Duration
	}{
		{name: "Short", down: 10 * time.Second, within: 17 * time.Second},
		{name: "Long", down: time.Hour, want: snib.ErrUnavailable, never: snib.ErrHeld, within: driver.RetryTimeout + 6*time.Second},
		{name: "Full", down: 5 * time.Minute, answer: errFull, within: 5*time.Minute + 12*time.Second},
		{name: "NoWait", down: time.Second, noWait: true, want: snib.ErrUnavailable, never: snib.ErrHeld},
		{name: "MaxWait", down: time.Hour, wait: 5 * time.Second, want: snib.ErrUnavailable, never: snib.ErrHeld, within: 5 * time.Second},
		{name: "Deadline", down: time.Hour, wait: -5 * time.Second, want: context.DeadlineExceeded, never: snib.ErrHeld, within: 5 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
				d.acquire = down(time.Now().Add(tt.down), cmp.Or(tt.answer, errDown))
				l, ctx := open(t, d), t.Context()
				switch {
				case tt.noWait:
					l = l.With(snib.NoWait())
				case tt.wait > 0:
					l = l.With(snib.MaxWait(tt.wait))
				case tt.wait < 0:
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, -tt.wait)
					defer cancel()
				}
				began := time.Now()
				lock, err := l.Acquire(ctx, "a")
				wantErr(t, "Acquire", err, tt.want)
				if tt.never != nil && errors.Is(err, tt.never) {
					t.Errorf("Acquire = %v, which matches %v", err, tt.never)
				}
				if took := time.Since(began); took > tt.within {
					t.Errorf("Acquire took %v, want at most %v", took, tt.within)
				}
				if err == nil {
					release(t, lock)
				}
			})
		})
	}
}

// MaxWait behind a holder is ErrHeld, in the queue of the process and in that of the store.
func TestMaxWaitIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		ours, theirs := open(t, store.Open()), open(t, store.Open())
		acquire(t, ours, "a")
		for _, l := range []*snib.Locker{ours, theirs} {
			_, err := l.With(snib.MaxWait(time.Second)).Acquire(t.Context(), "a")
			wantErr(t, "Acquire", err, snib.ErrHeld)
			if errors.Is(err, snib.ErrUnavailable) {
				t.Errorf("Acquire = %v, which matches ErrUnavailable", err)
			}
		}
	})
}

// A goroutine that queues behind another one, which asks a store that is unavailable, is not told that the lock is held.
func TestOutageBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.acquire = down(time.Now().Add(time.Hour), errDown)
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

// A store that hangs is told apart from a caller that gives up.
func TestNoAnswer(t *testing.T) {
	hangs := func(ctx context.Context, _ driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.acquire = hangs
		l := open(t, d)
		began := time.Now()
		_, err := l.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire", err, snib.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryAcquire = %v, but its context has no deadline", err)
		}
		if took := time.Since(began); took != driver.AnswerTimeout {
			t.Errorf("TryAcquire took %v, want %v", took, driver.AnswerTimeout)
		}
		errGone := errors.New("the caller went away")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errGone) })
		began = time.Now()
		_, err = l.TryAcquire(ctx, "a")
		wantErr(t, "TryAcquire that is cancelled", err, errGone)
		if took := time.Since(began); took != time.Second {
			t.Errorf("TryAcquire that is cancelled after 1s took %v", took)
		}
	})
}

// A context error inside a driver is not passed on to a caller whose own context lives.
func TestForeignContextError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		calls := 0
		d.acquire = func(_ context.Context, _ driver.Request, ask func() (driver.Lease, error)) (driver.Lease, error) {
			if calls++; calls == 1 {
				return nil, fmt.Errorf("reading: %w", context.Canceled)
			}
			return ask()
		}
		release(t, acquire(t, open(t, d), "a"))
		if calls != 2 {
			t.Errorf("the store was asked %d times, want twice", calls)
		}
		d.release = func(context.Context, func() error) error { return fmt.Errorf("writing: %w", context.Canceled) }
		err := acquire(t, open(t, d), "b").Release()
		wantErr(t, "Release", err, snib.ErrUnavailable)
		if errors.Is(err, context.Canceled) {
			t.Errorf("Release = %v, but nobody cancelled it", err)
		}
	})
}

// A lease is handed over in the process only while the store's last confirmation is fresh. The store of this test tells
// of a Break in renewals only.
func TestStaleHandOver(t *testing.T) {
	for _, held := range []time.Duration{0, 20 * time.Millisecond, ttl / 4} {
		t.Run(held.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(memlock.Store)
				d := newSpy(store)
				d.acquire = func(ctx context.Context, req driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
					req.OnLost = nil
					return d.Driver.Acquire(ctx, req)
				}
				ours, theirs := open(t, d), open(t, store.Open())
				first, got := behind(t, ours, "a")
				if err := store.Open().Break(t.Context(), "a", first.Owner(), first.Token()); err != nil {
					t.Fatal(err)
				}
				other := acquire(t, theirs, "a")
				release(t, other)
				time.Sleep(held)
				err := first.Release()
				next := <-got
				if held == 0 { // the window of 10 ms: a resource that checks tokens refuses the next hold
					return
				}
				wantErr(t, "Release of a hold whose lease the store had ended", err, snib.ErrLost)
				if next.Token() <= other.Token() {
					t.Errorf("token of the next local hold = %d, want more than %d, which another process had", next.Token(), other.Token())
				}
			})
		})
	}
}

// behind returns a hold with tokens for more, and what the goroutine gets that waits behind it.
func behind(t *testing.T, l *snib.Locker, name string) (*snib.Lock, <-chan *snib.Lock) {
	t.Helper()
	before := acquire(t, l, name)
	got := make(chan *snib.Lock, 2)
	for range 2 {
		go func() {
			lock, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Errorf("Acquire = %v", err)
			}
			got <- lock
		}()
	}
	synctest.Wait()
	release(t, before)
	return <-got, got
}

// The confirmation costs one renewal for each interval, not for each hand-over; a store that does not give it gets the
// lease back.
func TestConfirmation(t *testing.T) {
	tests := []struct {
		name     string
		renew    func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal
		pause    time.Duration // for which each hold is held
		renewals int           // during the hand-overs
		releases int           // of which the store is told
	}{
		{name: "Fresh", renewals: 0, releases: 2},
		{name: "Old", pause: 20 * time.Millisecond, renewals: 1, releases: 2},
		{name: "Unanswered", renew: unreachable, pause: 20 * time.Millisecond, renewals: 1, releases: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
				d.renew = tt.renew
				first, got := behind(t, open(t, d), "a")
				time.Sleep(tt.pause)
				release(t, first)
				next := <-got
				release(t, next)
				_, releases := d.count()
				if len(d.batches) != tt.renewals || releases != tt.releases {
					t.Errorf("%d renewals and %d releases, want %d and %d", len(d.batches), releases, tt.renewals, tt.releases)
				}
			})
		})
	}
}
