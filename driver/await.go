package driver

import (
	"context"
	"errors"
	"time"
)

// Await is the waiting loop of drivers whose store notifies: it calls try until that grants, fails, or ctx is done.
//
// The caller subscribes to hints before it calls Await, so that no notification falls between try and sleep. A try that
// finds the lock taken returns [ErrHeld] (wrapped or not) and how long to sleep at most, such as the rest of the
// holder's lease; a hint only shortens the sleep, so a lost one costs time and not liveness. Sleeps that are not
// positive become a millisecond.
//
// When ctx is done Await returns [context.Cause], after try, if it runs, has returned.
func Await[T any](ctx context.Context, hints <-chan struct{}, try func(context.Context) (T, time.Duration, error)) (T, error) {
	var none T
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if ctx.Err() != nil {
			return none, context.Cause(ctx)
		}
		got, sleep, err := try(ctx)
		if !errors.Is(err, ErrHeld) {
			return got, err
		}
		timer.Reset(max(sleep, time.Millisecond))
		select {
		case <-timer.C:
		case <-hints:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}
