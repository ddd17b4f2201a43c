package life

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Line is the connection of a session, which the server ends when it is silent for too long. One goroutine has it: it makes
// the calls for which others wait. Only that one uses Due and Make.
type Line struct {
	idle  time.Duration   // the silence that ends the session
	life  context.Context // done when the line is over, with the reason
	end   context.CancelCauseFunc
	heard time.Time // before the last call that was answered
}

// NewLine returns the line of a connection that is there now.
func NewLine(idle time.Duration) *Line {
	l := &Line{idle: idle, heard: time.Now()}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l
}

// Context is done when the line is over, with the reason as its cause.
func (l *Line) Context() context.Context { return l.life }

// End says that the line is over, and why. Calls end, and who waits for one hears of it.
func (l *Line) End(why error) { l.end(why) }

// Due is when the line has been silent for so long that something must be asked.
func (l *Line) Due() time.Time { return l.heard.Add(l.idle / 3) }

// A Call is something to be done on a line.
type Call struct {
	ctx  context.Context
	run  func(context.Context) error
	sent driver.Instant
	done chan error // of one
}

// NewCall returns a call of run for a caller whose context is ctx. It does not end with that: a call that is cut off costs
// the connection, and with it all locks.
func NewCall(ctx context.Context, run func(context.Context) error) *Call {
	return &Call{ctx: context.WithoutCancel(ctx), run: run, done: make(chan error, 1)}
}

// A DoubtError says that what the server holds for us is not known: its connection must end.
type DoubtError struct{ Err error }

func (e DoubtError) Error() string { return e.Err.Error() }

func (e DoubtError) Unwrap() error { return e.Err }

// Make makes a call, with a context that ends when the session may have ended. It returns an error if the connection can't be
// trusted any more: after a [DoubtError], or if broken says so of the call's context and error.
func (l *Line) Make(c *Call, broken func(context.Context, error) bool) error {
	// The server may end the session from heard + idle on. A tenth before, its holders must know.
	ctx, cancel := context.WithDeadline(c.ctx, l.heard.Add(l.idle*9/10))
	defer cancel()
	stop := context.AfterFunc(l.life, cancel)
	defer stop()
	began := time.Now()
	c.sent = driver.Now()
	err := c.run(ctx)
	if err == nil {
		l.heard = began
	}
	c.done <- err
	if errors.As(err, new(DoubtError)) || broken(ctx, err) {
		return fmt.Errorf("the connection is of no use any more: %w", err)
	}
	return nil
}

// Wait waits for the answer to a call that whoever has the line will make, and returns a moment before it was sent. When ctx is
// done it gives up, a [Moment] later, with an error that matches [driver.ErrUnavailable] and the
// cause of ctx. The call goes on, and the caller has to undo its outcome.
func (l *Line) Wait(ctx context.Context, c *Call) (driver.Instant, error) {
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.life.Done():
		return driver.Instant{}, fmt.Errorf("%w: its session is over: %w", driver.ErrLost, context.Cause(l.life))
	case <-ctx.Done():
	}
	select {
	case err := <-c.done:
		return c.sent, err
	case <-l.life.Done():
	case <-time.After(Moment):
		return driver.Instant{}, unanswered(ctx)
	}
	return driver.Instant{}, context.Cause(ctx)
}
