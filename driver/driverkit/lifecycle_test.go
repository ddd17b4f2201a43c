package driverkit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// End ends all contexts of a lifecycle, waits for its goroutines, and lets no new one begin.
func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := driverkit.NewLifecycle()
		caller, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		during, stop := s.During(caller)
		defer stop()
		var ended atomic.Bool
		if !s.Go(func() {
			<-s.Done()
			time.Sleep(time.Second)
			ended.Store(true)
		}) {
			t.Fatal("no goroutine begins")
		}
		if s.Over() || during.Err() != nil {
			t.Errorf("before End: over %v, during %v", s.Over(), during.Err())
		}
		calls := 0
		last := func() {
			calls++
			synctest.Wait() // the contexts of the lifecycle are done
			if ended.Load() || !s.Over() || s.Go(func() {}) {
				t.Errorf("when it is called last, all have ended: %v, over: %v", ended.Load(), s.Over())
			}
		}
		if first, second := s.End(last), s.End(last); !first || second {
			t.Errorf("first calls of End: %v, %v", first, second)
		}
		if !ended.Load() || calls != 1 {
			t.Errorf("after End the goroutine has ended: %v, and last was called %d times", ended.Load(), calls)
		}
		for _, ctx := range []context.Context{s.Context(), during} {
			if got := context.Cause(ctx); !errors.Is(got, driver.ErrClosed) {
				t.Errorf("cause = %v, want ErrClosed", got)
			}
		}
	})
}

// A call outlives its caller's context by one CancelDelay, and is over after CallTimeout at the
// latest. Its cause says that the server has not answered.
func TestDetached(t *testing.T) {
	errEnough := errors.New("enough")
	tests := []struct {
		name   string
		caller time.Duration // until its context is done
		want   time.Duration
		enough bool // the cause matches that of the caller
	}{
		{"Cancelled", time.Second, time.Second + driverkit.CancelDelay, true},
		{"CancelledBefore", 0, driverkit.CancelDelay, true},
		{"Patient", time.Hour, driverkit.CallTimeout, false},
		{"CancelledLate", driverkit.CallTimeout - driverkit.CancelDelay/2, driverkit.CallTimeout, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				caller, cancel := context.WithTimeoutCause(t.Context(), tt.caller, errEnough)
				defer cancel()
				ctx, stop := driverkit.Detached(caller)
				defer stop()
				<-ctx.Done()
				if got := time.Since(began); got != tt.want {
					t.Errorf("it ends after %v, want %v", got, tt.want)
				}
				cause := context.Cause(ctx)
				if !errors.Is(cause, driver.ErrUnavailable) || errors.Is(cause, errEnough) != tt.enough ||
					errors.Is(cause, context.Canceled) {
					t.Errorf("its cause is %v, want ErrUnavailable, and the caller's cause: %v", cause, tt.enough)
				}
			})
		})
	}
}
