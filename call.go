package snib

// This file bounds the calls of the driver in time, and puts their errors in terms of the caller.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// releaseTimeout bounds how long a release waits for the store. It may be a tenth less.
const releaseTimeout = 5 * time.Second

// releaseLease releases a lease in the store. It also returns the time of the request.
func (c *core) releaseLease(ctx context.Context, granted driver.Lease) (sent time.Time, _ error) {
	sent = time.Now()
	err := granted.Release(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = noAnswerError(releaseTimeout)
	}
	return sent, err
}

// tidyUp runs fn, which releases what an acquisition with the context ctx must not keep. It returns
// when that is done, or [driver.CancelTimeout] after the end of ctx; fn then goes on.
func tidyUp(ctx context.Context, fn func()) {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(driver.CancelTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
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
		return &maskedError{err: err, text: ErrUnavailable.Error() + ": " + reason}
	case ctx.Err() == nil:
		return noAnswerError(driver.AnswerTimeout)
	case unavailable:
		return err
	}
	return context.Cause(ctx)
}

// withCallerContext returns the error of an acquisition so that it matches an error of package
// context if, and only if, the caller's context has ended with that error. A context that ended
// with a cause of its own matches both.
func withCallerContext(caller context.Context, err error) error {
	ended, cause := caller.Err(), context.Cause(caller)
	if ended != nil && errors.Is(err, cause) && !errors.Is(err, ended) {
		return &contextError{err: err, ended: ended}
	}
	for _, other := range []error{context.Canceled, context.DeadlineExceeded} {
		if other != ended && errors.Is(err, other) && !errors.Is(cause, other) { //nolint:errorlint // the end of a context is not wrapped
			return &maskedError{err: err, text: err.Error(), shown: ended}
		}
	}
	return err
}

// A contextError is an error whose chain has the cause of a context, and how the context ended.
type contextError struct{ err, ended error }

func (e *contextError) Error() string   { return e.ended.Error() + ": " + e.err.Error() }
func (e *contextError) Unwrap() []error { return []error{e.err, e.ended} }

// A maskedError is err, except that it matches no error of package context but shown.
type maskedError struct {
	err   error
	text  string
	shown error // nil if there is none
}

func (e *maskedError) Error() string { return e.text }

func (e *maskedError) Is(target error) bool {
	if target == context.Canceled || target == context.DeadlineExceeded {
		return target == e.shown && errors.Is(e.err, target)
	}
	return errors.Is(e.err, target)
}

func (e *maskedError) As(target any) bool { return errors.As(e.err, target) }

// errNilContext is the error of a call with a nil context.
func errNilContext() error {
	return driver.Invalidf("context: it is nil; pass context.Background() if there is none")
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
