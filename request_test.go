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
func unavailableUntil(until time.Time,
	answer error) func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
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
		{name: "Long", down: time.Hour, want: snib.ErrUnavailable, never: snib.ErrHeld,
			within: driver.RetryTimeout + 6*time.Second},
		{name: "Full", down: 5 * time.Minute, answer: errFull, within: 5*time.Minute + 12*time.Second},
		{name: "NoWait", down: time.Second, noWait: true, want: snib.ErrUnavailable, never: snib.ErrHeld},
		{name: "MaxWait", down: time.Hour, wait: 5 * time.Second, want: snib.ErrUnavailable, never: snib.ErrHeld,
			within: 5 * time.Second},
		{name: "Deadline", down: time.Hour, wait: -5 * time.Second, want: context.DeadlineExceeded, never: snib.ErrHeld,
			within: 5 * time.Second},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
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
	}
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
		wantErr(t, "Release", err, snib.ErrUnreleased)
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
		bubble(t, tt.name, func(t *testing.T) {
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
	}
}
