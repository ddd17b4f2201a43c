package snib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// requestLease acquires a lease from the driver. While the store is unavailable it retries, if
// the request may wait, and records the outage for the waiters behind it in q.
func (l *Locker) requestLease(ctx context.Context, req driver.Request, q *nameQueue) (driver.Lease, error) {
	if req.NoWait {
		bounded := withLazyTimeout(ctx, driver.AnswerTimeout)
		defer bounded.cancel()
		granted, err := l.core.driver.Acquire(bounded, req)
		return granted, callerError(ctx, err)
	}
	for outage := (driverkit.Outage{}); ; {
		sentAt := time.Now()
		granted, err := l.core.driver.Acquire(ctx, req)
		err = callerError(ctx, err)
		pause, shouldRetry := outage.Again(sentAt, err)
		if !shouldRetry || ctx.Err() != nil {
			return granted, err
		}
		l.core.setOutage(q, err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		l.core.setOutage(q, nil)
	}
}

// callerError returns the error of an acquisition in terms of the caller, whose
// context is ctx. If a context ended inside the driver while ctx still lives, the
// caller must not see a context error.
func callerError(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	unavailable := errors.Is(err, ErrUnavailable) // more than a context's end
	reason := ""
	if unavailable {
		reason = withoutContextError(strings.TrimPrefix(err.Error(), ErrUnavailable.Error()+": "))
	}
	switch {
	case ctx.Err() == nil && reason != "":
		return fmt.Errorf("%w: %s", ErrUnavailable, reason)
	case ctx.Err() == nil:
		return noAnswerError(driver.AnswerTimeout)
	case unavailable:
		return err
	}
	return context.Cause(ctx)
}

// withoutContextError cuts off the end of an error's text that says that a context has ended. What
// remains is the cause, if the error has one.
func withoutContextError(text string) string {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		if cause, ok := strings.CutSuffix(text, end.Error()); ok {
			return strings.TrimRight(cause, ":; ")
		}
	}
	return text
}

// noAnswerError is the error of a request that the store did not answer in time. It does not
// match the errors of package context: the caller's own context may still be alive.
func noAnswerError(timeout time.Duration) error {
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, timeout)
}

// A waitError is the cause with which MaxWait ends a wait.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return fmt.Sprintf("waited for %v", e.after) }

// addErrHeld adds ErrHeld to the error of a wait that MaxWait ended,
// unless the store was unavailable.
func addErrHeld(err error) error {
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrHeld) && errors.As(err, new(*waitError)) {
		return fmt.Errorf("%w: %w", ErrHeld, err)
	}
	return err
}
