package driverkit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// CancelDelay is how long a call may go on after the context of its caller is done. Most
	// calls are over within a millisecond, and knowing the outcome is better than
	// guessing it. A call that is cut off costs a connection. The rest of CancelTimeout
	// is for what the caller does afterwards.
	CancelDelay = driver.CancelTimeout / 2

	// CallTimeout is the timeout of a call. A server that takes longer counts as unavailable.
	CallTimeout = driver.AnswerTimeout

	// CleanupTimeout is the timeout for cleaning up what a failed request may have left.
	CleanupTimeout = time.Second
)

// Detached returns a context for a call of the server on behalf of a caller whose context is ctx.
// It is done one [CancelDelay] after ctx, so that most calls still get their answer and the
// connection, which belongs to the user, survives. It is done [CallTimeout] from now at the latest.
// Its cause then matches [driver.ErrUnavailable], because the server has not answered, and also
// the cause of ctx if ctx is done.
func Detached(ctx context.Context) (context.Context, context.CancelFunc) {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	longest := time.AfterFunc(CallTimeout, func() {
		cancel(fmt.Errorf("%w: no answer within %v", driver.ErrUnavailable, CallTimeout))
	})
	stop := context.AfterFunc(ctx, func() {
		moment := time.AfterFunc(CancelDelay, func() { cancel(noAnswerError(ctx)) })
		context.AfterFunc(callCtx, func() { moment.Stop() })
	})
	return callCtx, func() { stop(); longest.Stop(); cancel(nil) }
}

// A SharedTimeout makes contexts for calls. Those that begin at about the same time share one: a
// timer for each would cost more than all else in a quick call. It is safe for concurrent use.
type SharedTimeout struct {
	Least, Most time.Duration // how long a call may take; it depends on when others begin

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // of the calls that begin before renewAt
	end     context.CancelFunc
	renewAt time.Time
}

// Context returns the context of a call that begins now.
func (s *SharedTimeout) Context(now time.Time) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.Before(s.renewAt) {
		s.ctx, s.end = context.WithTimeout(context.Background(), s.Most)
		s.renewAt = now.Add(s.Most - s.Least)
	}
	return s.ctx
}

// EndOfWait returns the error of an acquisition whose context has ended with cause. why is the last
// that is known of the store, or nil. If that matches [driver.ErrUnavailable], so does the error:
// an outage is not a lock that is held. After Close the error is [driver.ErrClosed] alone.
func EndOfWait(cause, why error) error {
	switch {
	case !errors.Is(why, driver.ErrUnavailable), errors.Is(cause, driver.ErrClosed):
		return cause
	case errors.Is(why, cause):
		return why
	}
	return fmt.Errorf("%w: %w", why, cause)
}

// noAnswerError is the error of a call without an answer by the time its caller gave up.
func noAnswerError(ctx context.Context) error {
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, context.Cause(ctx))
}

// SaysLost reports whether err, the result of a call with ctx, says that the store has ended a
// hold. If ctx has ended, err may be its cause: the loss of another lock.
func SaysLost(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, driver.ErrLost)
}
