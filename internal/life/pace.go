package life

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A Pace keeps all who poll for something apart from one another. Its zero value is ready, and safe for concurrent use.
type Pace struct {
	mu   sync.Mutex
	next time.Time
}

// Wait waits for the caller's turn: turns are at least one interval apart, and the first is an interval from now. It returns
// [context.Cause] if ctx is done before, and the turn is lost.
func (p *Pace) Wait(ctx context.Context, interval time.Duration) error {
	p.mu.Lock()
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(interval)
	timer := time.NewTimer(time.Until(p.next))
	p.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Every does something in the background once in so many times. Its zero value is ready, and safe for concurrent use.
type Every struct {
	count   atomic.Int64
	running atomic.Bool
}

// Note counts, and each nth time runs fn in a goroutine of the span, unless it runs still: then the next time has it run. It
// does nothing when the span is over.
func (e *Every) Note(n int64, s *Span, fn func()) {
	if e.count.Add(1) < n || !e.running.CompareAndSwap(false, true) {
		return
	}
	e.count.Store(0)
	s.Go(func() {
		defer e.running.Store(false)
		fn()
	})
}
