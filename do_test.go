package snib_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

func TestDo(t *testing.T) {
	errBody := errors.New("body")
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		l := open(t, store.Open())
		wantErr(t, "Do", l.Do(t.Context(), "a", func(context.Context, *snib.Lock) error { return errBody }), errBody)

		func() {
			defer func() { recover() }()
			_ = l.Do(t.Context(), "a", func(context.Context, *snib.Lock) error { panic("body") })
		}()
		release(t, acquire(t, l, "a")) // released by Do despite the panic

		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, "a", func(ctx context.Context, lock *snib.Lock) error {
			cancel()
			<-ctx.Done()
			time.Sleep(2 * ttl) // the lock is kept while the function winds down
			if isClosed(lock.Lost()) {
				t.Error("the hold was lost while a cancelled body wound down")
			}
			return ctx.Err()
		})
		wantErr(t, "Do with a cancelled context", err, context.Canceled)

		var inner error
		err = l.Do(t.Context(), "a", func(ctx context.Context, lock *snib.Lock) error {
			if err := store.Open().Break(ctx, "a", lock.ID()); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			inner = context.Cause(ctx)
			return nil
		})
		wantErr(t, "cause of the body's context", inner, snib.ErrLost)
		wantErr(t, "Do whose body did not notice", err, snib.ErrLost)
	})
}

// What Do returns tells whether the work was not begun, was done while the lock lapses, or was done
// when the lock may have been another's. No error says two of these: a caller who begins anew after
// an ErrUnavailable would do the work twice.
func TestOutcomesAreApart(t *testing.T) {
	outcomes := []error{snib.ErrUnavailable, snib.ErrUnreleased, snib.ErrLost, snib.ErrHeld, context.DeadlineExceeded,
		context.Canceled}
	tests := []struct {
		name          string
		before, after func(d *fault.Driver) // of the store, before Do and in its function
		want          error
		timeout       time.Duration // of the context of Do
	}{
		{"NotBegun", func(d *fault.Driver) { d.Sever(fault.Fail) }, nil, snib.ErrUnavailable, time.Hour},
		{"Unreleased", nil, func(d *fault.Driver) { d.Sever(fault.Fail) }, snib.ErrUnreleased, time.Hour},
		{"UnreleasedInSilence", nil, func(d *fault.Driver) { d.Sever(fault.Hang) }, snib.ErrUnreleased, time.Hour},
		{"Lost", nil, func(d *fault.Driver) { d.Sever(fault.Fail); time.Sleep(time.Minute) }, snib.ErrLost, time.Hour},
		{"LostInSilence", nil, func(d *fault.Driver) { d.Sever(fault.Hang); time.Sleep(time.Minute) }, snib.ErrLost, time.Hour},
		{"UnreleasedByDeadline", nil, func(d *fault.Driver) { d.Sever(fault.Hang) }, snib.ErrUnreleased, time.Second},
		{"LostByDeadline", nil, func(d *fault.Driver) { d.Sever(fault.Hang); time.Sleep(time.Minute) }, snib.ErrLost, time.Second},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			d := fault.Wrap(memlock.New(), fault.Plan{})
			l := open(t, d, snib.NoWait())
			if tt.before != nil {
				tt.before(d)
			}
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			done := false
			err := l.Do(ctx, "a", func(context.Context, *snib.Lock) error {
				tt.after(d)
				done = true
				return nil
			})
			if done != (tt.after != nil) {
				t.Errorf("the function was called: %t", done)
			}
			for _, outcome := range outcomes {
				if got := errors.Is(err, outcome); got != errors.Is(tt.want, outcome) {
					t.Errorf("Do = %v; whether it matches %q: %t", err, outcome, got)
				}
			}
			time.Sleep(time.Minute) // what hangs ends
		})
	}
}
