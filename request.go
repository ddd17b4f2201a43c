package snib

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/retry"
)

// request asks the driver for a lease. While the store is unavailable it asks again, if the request may wait.
// Those that queue behind it in g are told why they wait.
func (l *Locker) request(ctx context.Context, req driver.Request, g *gate) (driver.Lease, error) {
	if req.NoWait {
		bounded := within(ctx, driver.AnswerTimeout)
		defer bounded.end()
		granted, err := l.core.driver.Acquire(bounded, req)
		return granted, explain(ctx, err)
	}
	for outage := (retry.Outage{}); ; {
		asked := time.Now()
		granted, err := l.core.driver.Acquire(ctx, req)
		err = explain(ctx, err)
		pause, again := outage.Again(asked, err)
		if !again || ctx.Err() != nil {
			return granted, err
		}
		l.core.noteOutage(g, err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
		l.core.noteOutage(g, nil)
		req.Begun = driver.Instant{}
	}
}

// explain returns the error of an acquisition in words that are true for the caller, whose context is ctx: a context
// that ended inside the driver is no affair of a caller whose own lives on.
func explain(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	unavailable := errors.Is(err, ErrUnavailable) // the driver knows more than that a context is done
	switch {
	case ctx.Err() == nil && unavailable:
		return fmt.Errorf("%w: %s", ErrUnavailable, strings.TrimPrefix(err.Error(), ErrUnavailable.Error()+": "))
	case ctx.Err() == nil:
		return unanswered(driver.AnswerTimeout)
	case unavailable:
		return err
	}
	return context.Cause(ctx)
}

// unanswered is the error of a call that the store did not answer in time. It does not match the errors of contexts: the
// caller's own may still be alive.
func unanswered(timeout time.Duration) error {
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, timeout)
}

// A waitError is the cause with which a wait ends at MaxWait.
type waitError struct{ after time.Duration }

func (e *waitError) Error() string { return fmt.Sprintf("waited for %v", e.after) }

// heldAfterWait adds ErrHeld to the error of a wait that MaxWait ended, unless the store was unavailable.
func heldAfterWait(err error) error {
	if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrHeld) && errors.As(err, new(*waitError)) {
		return fmt.Errorf("%w: %w", ErrHeld, err)
	}
	return err
}
