package driver

import (
	"context"
	"errors"
	"time"
)

// Await is the waiting loop of drivers whose store sends notifications: it calls try until try
// succeeds, try fails, or ctx is done.
//
// The caller subscribes to hints before it calls Await, so that no notification is missed
// between try and the sleep. A try that finds the lock taken returns [ErrHeld] (wrapped or not)
// and the longest time to sleep, such as the rest of the holder's lease. A hint only shortens
// the sleep, so a lost hint costs time and not liveness. A sleep that is not positive becomes a
// millisecond.
//
// When ctx is done, Await returns [context.Cause]; if try is running, it waits for try to
// return first.
func Await[T any](ctx context.Context, hints <-chan struct{},
	try func(context.Context) (T, time.Duration, error)) (T, error) {
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
