// Package life manages lifetimes in a driver: of its goroutines, until the driver is
// closed; of its calls of the server, after the caller has given up; and of a
// session, while the server is silent.
package life

import (
	"context"
	"sync"

	"github.com/sniblock/snib/driver"
)

// A Span is the lifetime of a driver, from [New] to Close. It is safe for concurrent use.
type Span struct {
	ctx        context.Context
	cancel     context.CancelCauseFunc
	endOnce    sync.Once
	startMu    sync.Mutex     // held to start a goroutine, and to end the span
	goroutines sync.WaitGroup // started by Go
}

// New returns a span that begins now.
func New() *Span {
	s := &Span{}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Context returns a context that is done when the span is over, with
// [driver.ErrClosed] as its cause.
func (s *Span) Context() context.Context { return s.ctx }

// Done returns a channel that is closed when the span is over.
func (s *Span) Done() <-chan struct{} { return s.ctx.Done() }

// Over reports whether the span is over.
func (s *Span) Over() bool { return s.ctx.Err() != nil }

// Ready returns why a driver can't serve a request, or nil: the cause of ctx if ctx is
// done; broken, if not nil, which says why the driver can't work at all; or
// [driver.ErrClosed] if the span is over.
func (s *Span) Ready(ctx context.Context, broken error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case broken != nil:
		return broken
	case s.Over():
		return driver.ErrClosed
	}
	return nil
}

// During returns a context that is done with ctx or with the span, whichever is first,
// and a function that releases it.
func (s *Span) During(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(s.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() { detach(); cancel(nil) }
}

// Go runs fn in a goroutine that End waits for. If the span is over, Go does
// not run fn and returns false.
func (s *Span) Go(fn func()) bool {
	s.startMu.Lock()
	defer s.startMu.Unlock()
	if s.Over() {
		return false
	}
	s.goroutines.Go(fn)
	return true
}

// End ends the span, calls last unless it is nil, and waits for the goroutines. It reports
// whether this was the first call. Other calls only wait for the first one.
func (s *Span) End(last func()) (first bool) {
	s.endOnce.Do(func() {
		first = true
		s.startMu.Lock()
		s.cancel(driver.ErrClosed)
		s.startMu.Unlock()
		if last != nil {
			last()
		}
		s.goroutines.Wait()
	})
	return first
}
