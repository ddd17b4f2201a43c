// Package life is about how long things last in a driver: its goroutines, until it is closed; its calls of the server, when
// their caller has no more time; and a session, when its server is silent.
package life

import (
	"context"
	"sync"

	"github.com/sniblock/snib/driver"
)

// A Span is the time from the making of a driver, by [New], to its Close. It is safe for concurrent use.
type Span struct {
	ctx      context.Context
	end      context.CancelCauseFunc
	ending   sync.Once
	starting sync.Mutex     // keeps goroutines from beginning while the span ends
	running  sync.WaitGroup // the goroutines
}

// New begins a span.
func New() *Span {
	s := &Span{}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	return s
}

// Context is done when the span is over, with [driver.ErrClosed] as its cause.
func (s *Span) Context() context.Context { return s.ctx }

// Done is closed when the span is over.
func (s *Span) Done() <-chan struct{} { return s.ctx.Done() }

// Over reports whether the span is over.
func (s *Span) Over() bool { return s.ctx.Err() != nil }

// Ready reports what keeps a driver from doing anything: that ctx is done, with its cause; that it can't work at all, which is
// bad; or that the span is over.
func (s *Span) Ready(ctx context.Context, bad error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bad != nil:
		return bad
	case s.Over():
		return driver.ErrClosed
	}
	return nil
}

// During returns a context that is done with ctx or with the span, whichever comes first, and what gives it up.
func (s *Span) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// Go runs fn in a goroutine that End waits for. It reports false, and does not run it, if the span is over.
func (s *Span) Go(fn func()) bool {
	s.starting.Lock()
	defer s.starting.Unlock()
	if s.Over() {
		return false
	}
	s.running.Go(fn)
	return true
}

// End ends the span, calls last unless it is nil, and waits for the goroutines. It reports whether this was the first call;
// others wait for that one, and do nothing else.
func (s *Span) End(last func()) (first bool) {
	s.ending.Do(func() {
		first = true
		s.starting.Lock()
		s.end(driver.ErrClosed)
		s.starting.Unlock()
		if last != nil {
			last()
		}
		s.running.Wait()
	})
	return first
}
