package rediskit

import (
	"math/rand/v2"
	"time"
)

// A Backoff spaces the retries while a store does not answer. The zero value is ready for use.
type Backoff struct {
	since time.Time // of the first retry
	pause time.Duration
}

// Next returns the pause before the next retry. retry is false when limit has passed since the
// first retry.
func (b *Backoff) Next(limit time.Duration) (pause time.Duration, retry bool) {
	if b.pause == 0 {
		b.since, b.pause = time.Now(), time.Millisecond
		return 1, true // almost at once: a broken connection is soon replaced
	}
	b.pause = min(2*b.pause, 500*time.Millisecond)
	return b.pause/2 + rand.N(b.pause/2), time.Since(b.since) < limit
}

// WaitUntil calls wait, and returns when that does, or at the deadline.
func WaitUntil(deadline time.Time, wait func()) {
	idle := make(chan struct{})
	go func() {
		wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(time.Until(deadline)):
	}
}
