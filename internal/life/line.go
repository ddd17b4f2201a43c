package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Line is the connection of a session that the server ends after a silence. One goroutine owns
// the line and makes the calls for which others wait. Only that goroutine uses Due and Make.
type Line struct {
	sessionTimeout time.Duration   // the server ends the session after this silence
	ctx            context.Context // done when the line is over; the cause says why
	cancel         context.CancelCauseFunc
	lastSuccess    time.Time // when the last successful call was sent
}

// NewLine returns a line for a connection that has just been made.
func NewLine(sessionTimeout time.Duration) *Line {
	l := &Line{sessionTimeout: sessionTimeout, lastSuccess: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// Context returns a context that is done when the line is over. Its cause says why.
func (l *Line) Context() context.Context { return l.ctx }

// End ends the line for the given reason. It cancels the current call, and everybody who
// waits for a call gets the reason.
func (l *Line) End(why error) { l.cancel(why) }

// Due returns when the line will have been silent for so long that a call must be made.
func (l *Line) Due() time.Time { return l.lastSuccess.Add(l.sessionTimeout / 3) }

// A Call is a function to run on a line.
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

// A DoubtError says that it is not known what the server holds for us.
// The connection must be closed.
type DoubtError struct{ Err error }

func (e DoubtError) Error() string { return e.Err.Error() }

func (e DoubtError) Unwrap() error { return e.Err }

// Make makes a call, with a context that ends when the session may have ended. It returns an
// error if the connection can't be trusted any more: after a [DoubtError], or if broken returns
// true for the call's context and error.
func (l *Line) Make(c *Call, broken func(context.Context, error) bool) error {
	// The server may end the session sessionTimeout after lastSuccess. The holders must know
	// a tenth of that time earlier.
	ctx, cancel := context.WithDeadline(c.ctx, l.lastSuccess.Add(l.sessionTimeout*9/10))
	defer cancel()
	detach := context.AfterFunc(l.ctx, cancel)
	defer detach()
	began := time.Now()
	c.sent = driver.Now()
	err := c.run(ctx)
	if err == nil {
		l.lastSuccess = began
	}
	c.done <- err
	if errors.As(err, new(DoubtError)) || broken(ctx, err) {
		return fmt.Errorf("the connection is of no use any more: %w", err)
	}
	return nil
}

// Wait waits for the answer to a call that the owner of the line makes. It returns a time just
// before the call was sent. If ctx ends, Wait gives up one [Moment] later, with an error that
// matches [driver.ErrUnavailable] and the cause of ctx. If the line ends during that Moment, the
// error is the cause of ctx. The call may go on, and the caller has to undo its outcome.
func (l *Line) Wait(ctx context.Context, c *Call) (driver.Instant, error) {
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.ctx.Done():
		return driver.Instant{}, fmt.Errorf("%w: its session is over: %w", driver.ErrLost, context.Cause(l.ctx))
	case <-ctx.Done():
	}
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.ctx.Done():
	case <-time.After(Moment):
		return driver.Instant{}, noAnswerError(ctx)
	}
	return driver.Instant{}, context.Cause(ctx)
}
