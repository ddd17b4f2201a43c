package driverkit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A RateLimit limits the rate at which its users poll, all of them together. The zero value is
// ready to use. It is safe for concurrent use.
type RateLimit struct {
	mu   sync.Mutex
	next time.Time
}

// Wait waits for the caller's turn. Turns are at least one interval apart, and the first is one
// interval from now. If ctx is done earlier, Wait returns [context.Cause], and the turn is lost.
func (p *RateLimit) Wait(ctx context.Context, interval time.Duration) error {
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

// An Every runs a function in the background once in n times. The zero value is ready to use.
// It is safe for concurrent use.
type Every struct {
	count   atomic.Int64
	running atomic.Bool
}

// Note counts a call, and every nth time runs fn in a goroutine of l. If fn is still running
// then, a later call runs it. If the lifecycle is over, Note does not run fn.
func (e *Every) Note(n int64, l *Lifecycle, fn func()) {
	if e.count.Add(1) < n || !e.running.CompareAndSwap(false, true) {
		return
	}
	e.count.Store(0)
	l.Go(func() {
		defer e.running.Store(false)
		fn()
	})
}
