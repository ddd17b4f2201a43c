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

// errDown is what a driver returns while its store is unavailable.
var errDown = fmt.Errorf("%w: connection refused", driver.ErrUnavailable)

// errFull is what a driver returns while its store has no connection left.
var errFull = fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)

// unavailableUntil makes a driver return answer until the given time.
func unavailableUntil(until time.Time, answer error) func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
	return func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		if time.Now().Before(until) {
			return nil, answer
		}
		return send()
	}
}

// An acquisition that may wait survives an outage of the store of up to RetryTimeout, and any
// time for which the store is full. One that must not wait does not.
func TestOutage(t *testing.T) {
	tests := []struct {
		name string
		// down is how long the store is unavailable. wait is MaxWait, or the
		// negated timeout of the context.
		down, wait time.Duration
		answer     error // error of the driver meanwhile; errDown by default
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
				d.acquire = unavailableUntil(time.Now().Add(tt.down), cmp.Or(tt.answer, errDown))
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

// MaxWait behind a holder is ErrHeld, in the local queue and in that of the store.
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

// A store that hangs and a caller that gives up lead to different errors.
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

// A context error inside a driver is not returned to a caller whose own context lives.
func TestForeignContextError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		calls := 0
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if calls++; calls == 1 {
				return nil, fmt.Errorf("reading: %w", context.Canceled)
			}
			return send()
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

// A request that may not wait fails with the cause that the driver names. Its text does not say
// that a context has ended, because the caller has set no deadline.
func TestCauseOfNoAnswer(t *testing.T) {
	refused := errors.New("connection refused")
	tests := []struct {
		name   string
		answer func(end error) error // error of the driver whose context has ended
		want   string
	}{
		{"Colon", func(end error) error { return fmt.Errorf("%w: %w", refused, end) }, "connection refused"},
		{"Semicolon", func(end error) error { return fmt.Errorf("%w; %w", refused, end) }, "connection refused"},
		{"CauseOnly", func(error) error { return refused }, "connection refused"},
		{"EndOnly", func(end error) error { return end }, "no answer within 5s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newSpy(new(memlock.Store))
				d.acquire = func(ctx context.Context, _ driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
					<-ctx.Done()
					return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, tt.answer(ctx.Err()))
				}
				_, err := open(t, d).TryAcquire(t.Context(), "a")
				var failed *snib.Error
				if !errors.As(err, &failed) || failed.Err.Error() != "the store is unavailable: "+tt.want {
					t.Errorf("TryAcquire = %v, want the cause %q", err, tt.want)
				}
			})
		})
	}
}

// A lease is handed over within the process only while the store's last confirmation is fresh.
// The store of this test reports a Break in renewals only.
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
				first, got := acquireWithWaiters(t, ours, "a")
				if err := store.Open().Break(t.Context(), "a", first.Owner(), first.Token()); err != nil {
					t.Fatal(err)
				}
				other := acquire(t, theirs, "a")
				release(t, other)
				time.Sleep(held)
				err := first.Release()
				next := <-got
				// This is within confirmInterval: a resource that checks
				// tokens refuses the next hold.
				if held == 0 {
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

// acquireWithWaiters returns a hold with reserved tokens, and a channel that receives the hold of
// the goroutine that waits behind it.
func acquireWithWaiters(t *testing.T, l *snib.Locker, name string) (*snib.Lock, <-chan *snib.Lock) {
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

// The confirmation costs one renewal for each interval, not for each hand-over. Without a
// confirmation the lease is released in the store.
func TestConfirmation(t *testing.T) {
	tests := []struct {
		name     string
		renew    func(context.Context, []driver.Lease, func() []driver.Renewal) []driver.Renewal
		pause    time.Duration // how long the first hold lasts
		renewals int           // during the hand-overs
		releases int           // in the store
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
				first, got := acquireWithWaiters(t, open(t, d), "a")
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
