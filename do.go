package snib

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// Do acquires the lock, calls fn, and releases the lock, even if fn panics. The context
// bounds both the wait and fn. The context passed to fn ends with ctx or with the hold,
// whichever is first, and carries the hold, for [Reentrant]. While fn winds down after the
// end of ctx, the hold is still renewed.
//
// Do returns the errors of [Locker.Acquire], and then fn was not called, or what fn returns. If the
// hold was lost, the result matches [ErrLost] even if fn returned nil. If fn returned nil, and the
// store did not confirm the release, the result matches [ErrUnreleased]: the work was done, and the
// lock lapses within its TTL. If fn returned nil, neither of these two matches [ErrUnavailable],
// [ErrHeld] or the end of a context. A nil fn is an [ErrInvalid], and the lock is not acquired.
//
// Do returns by the deadline of ctx, or [driver.CancelTimeout] (50 ms) later, even if the store
// does not answer the release, unless fn itself takes longer. The release then goes on in the
// background for up to 5 seconds.
func (l *Locker) Do(ctx context.Context, name string, fn func(ctx context.Context, lock *Lock) error) (err error) {
	if err := l.Err(); err != nil {
		return err
	}
	if ctx != nil && fn == nil {
		return l.wrapError("acquire", l.conf.prefix+name, driver.Invalidf("function: it is nil"))
	}
	lock, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	body, scope := newContext(ctx, lock.hold)
	defer func() {
		released := l.releaseBy(ctx, lock)
		scope.end(ErrReleased)
		switch {
		case released == nil, errors.Is(released, ErrLost) && errors.Is(err, ErrLost):
		case err != nil && errors.Is(released, ErrUnreleased): // which would say that the work was done
			err = fmt.Errorf("%w; and %v", err, released) //nolint:errorlint // so it must not match
		default:
			err = joinErrors(err, released)
		}
	}()
	return fn(body, lock)
}

// releaseBy releases the lock. It returns by the deadline of ctx, if it has one: the release then
// goes on in the background.
func (l *Locker) releaseBy(ctx context.Context, lock *Lock) error {
	deadline, ok := ctx.Deadline()
	left := max(time.Until(deadline), driver.CancelTimeout)
	if !ok || left >= releaseTimeout {
		return lock.Release() // which ends in time by itself
	}
	done := make(chan error, 1)
	go func() { done <- lock.Release() }()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		l.core.mu.Lock()
		cause := lock.hold.endCause()
		l.core.mu.Unlock()
		if !errors.Is(cause, ErrLost) {
			cause = withUnreleased(fmt.Errorf("%w: no answer by the deadline of the context", ErrUnavailable))
		}
		return l.wrapError("release", lock.Name(), cause)
	}
}
