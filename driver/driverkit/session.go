package driverkit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A SessionConn manages the calls on the connection of a session that the server ends after a
// silence. One goroutine owns the connection and makes the calls for which others wait. Only that
// goroutine uses Due and Run.
type SessionConn struct {
	sessionTimeout time.Duration   // the server ends the session after this silence
	ctx            context.Context // done when the connection is over; the cause says why
	cancel         context.CancelCauseFunc
	lastSuccess    time.Time // when the last successful call was sent
}

// NewSessionConn returns a SessionConn for a connection that has just been made.
func NewSessionConn(sessionTimeout time.Duration) *SessionConn {
	s := &SessionConn{sessionTimeout: sessionTimeout, lastSuccess: time.Now()}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Context returns a context that is done when the connection is over. Its cause says why.
func (s *SessionConn) Context() context.Context { return s.ctx }

// End ends the connection for the given reason. It cancels the current call, and everybody who
// waits for a call gets the reason.
func (s *SessionConn) End(why error) { s.cancel(why) }

// Due returns when the connection will have been silent for so long that a call must be made.
func (s *SessionConn) Due() time.Time { return s.lastSuccess.Add(s.sessionTimeout / 3) }

// A Call is a function to run on a connection.
type Call struct {
	ctx  context.Context
	run  func(context.Context) error
	sent driver.Instant
	done chan error // capacity 1
}

// NewCall returns a call of run for a caller whose context is ctx. The call does not end with
// ctx: a call that is cut off costs the connection, and with it all locks.
func NewCall(ctx context.Context, run func(context.Context) error) *Call {
	return &Call{ctx: context.WithoutCancel(ctx), run: run, done: make(chan error, 1)}
}

// An UnknownOutcomeError says that it is not known what the server holds for us.
// The connection must be closed.
type UnknownOutcomeError struct{ Err error }

func (e UnknownOutcomeError) Error() string { return e.Err.Error() }

func (e UnknownOutcomeError) Unwrap() error { return e.Err }

// Run makes a call, with a context that ends when the session may have ended. It returns an error
// if the connection can't be trusted any more: after an [UnknownOutcomeError], or if broken returns
// true for the call's context and error.
func (s *SessionConn) Run(c *Call, broken func(context.Context, error) bool) error {
	// The server may end the session sessionTimeout after lastSuccess. The holders must know
	// a tenth of that time earlier.
	ctx, cancel := context.WithDeadline(c.ctx, s.lastSuccess.Add(s.sessionTimeout*9/10))
	defer cancel()
	detach := context.AfterFunc(s.ctx, cancel)
	defer detach()
	began := time.Now()
	c.sent = driver.Now()
	err := c.run(ctx)
	if err == nil {
		s.lastSuccess = began
	}
	c.done <- err
	if errors.As(err, new(UnknownOutcomeError)) || broken(ctx, err) {
		return fmt.Errorf("the connection can't be used any more: %w", err)
	}
	return nil
}

// Wait waits for the answer to a call that the owner of the connection makes. It returns a time
// just before the call was sent. If ctx ends, Wait gives up one [CancelDelay] later, with an error
// that matches [driver.ErrUnavailable] and the cause of ctx. If the connection ends during that
// delay, the error is the cause of ctx. The call may go on, and the caller has to undo its outcome.
func (s *SessionConn) Wait(ctx context.Context, c *Call) (driver.Instant, error) {
	select {
	case err := <-c.done:
		return c.sent, err
	case <-s.ctx.Done():
		return driver.Instant{}, fmt.Errorf("%w: its session is over: %w", driver.ErrLost, context.Cause(s.ctx))
	case <-ctx.Done():
	}
	select {
	case err := <-c.done:
		return c.sent, err
	case <-s.ctx.Done():
	case <-time.After(CancelDelay):
		return driver.Instant{}, noAnswerError(ctx)
	}
	return driver.Instant{}, context.Cause(ctx)
}
