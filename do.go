package snib

import (
	"context"
	"errors"
)

// Do acquires the lock, calls fn, and releases the lock, even if fn panics. The context
// bounds both the wait and fn. The context passed to fn ends with ctx or with the hold,
// whichever is first, and carries the hold, for [Reentrant]. While fn winds down after the
// end of ctx, the hold is still renewed.
//
// Do returns the errors of [Locker.Acquire], or what fn returns. If the hold was lost,
// the result matches [ErrLost] even if fn returned nil. A release that the store did not
// confirm is not an error of fn's work: Do reports it to [Trace] and the log only, and
// the lock lapses within its TTL.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, lock *Lock) error) (err error) {
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	body, scope := newContext(ctx, lock.hold)
	defer func() {
		lost := lock.Release()
		scope.end(ErrReleased)
		if errors.Is(lost, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(body, lock)
}
