package rows

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A Lease is an entry among the holders of a row, as far as the driver knows.
type Lease struct {
	Req   driver.Request
	Nonce string // of the entry

	d         *Driver
	grant     driver.Grant
	confirmed driver.Instant // as of the last renewal, or the grant; guarded by registry.mu

	isWanted atomic.Bool // another process waits, and the holder was told

	releaseMu sync.Mutex // serializes Release

	mu        sync.Mutex
	releasing bool // Release was called: from then on the end is not a loss
	ended     bool // nothing is left to release
	err       error
}

// Grant implements [driver.Lease].
func (l *Lease) Grant() driver.Grant { return l.grant }

// ID returns the id of the request that has led to the lease.
func (l *Lease) ID() string { return l.Req.ID }

// Lease implements [driver.Driver]. The lease is not told when it ends.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &Lease{d: d, Req: driver.Request{Name: name, ID: id, TTL: ttl}, Nonce: d.newNonce()}
}

// NotifyWanted tells the holder that another process waits.
func (l *Lease) NotifyWanted() {
	if l.grant.TellsWanted && l.isWanted.CompareAndSwap(false, true) && l.Req.OnWanted != nil {
		l.Req.OnWanted()
	}
}

// lose ends the lease because the store has ended it. It calls OnLost unless why is nil.
func (l *Lease) lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.releasing {
		return
	}
	l.ended, l.err = true, driver.ErrLost
	l.d.registry.removeLease(l)
	if l.Req.OnLost != nil && why != nil {
		l.Req.OnLost(why)
	}
}

// MarkBroken ends a lease that is no longer in its row, and calls OnLost.
func (l *Lease) MarkBroken() {
	l.lose(fmt.Errorf("%w: it was broken, or its time was over", driver.ErrLost))
}

// Renewed returns the answer to a renewal that was sent at start. A lease that is not held any more
// is lost.
func (l *Lease) Renewed(held bool, start driver.Instant) driver.Renewal {
	if !held || l.HasEnded() {
		l.lose(nil)
		return driver.Renewal{Err: driver.ErrLost}
	}
	l.d.registry.mu.Lock()
	defer l.d.registry.mu.Unlock()
	l.confirmed = start
	return driver.Renewal{Start: start}
}

// HasEnded reports whether the lease has ended, as far as the driver knows.
func (l *Lease) HasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Release implements [driver.Lease]. If it fails because the store is unavailable, the driver
// retries in the background until it is closed.
func (l *Lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	l.mu.Lock()
	l.releasing = true
	l.mu.Unlock()
	err := l.release(ctx, false)
	if err != nil {
		key := l.Req.Name + "\x00" + l.ID() // a service may ask for the same release again and again
		l.d.registry.recordCleanup(key, func(ctx context.Context) error { return l.release(ctx, true) }, false, err)
	}
	return err
}

// release releases the lease in the store. If retried is true, an earlier try
// may have ended the lease, and a lease that is missing from the store is not a loss.
func (l *Lease) release(ctx context.Context, retried bool) error {
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	l.mu.Lock()
	ended, err := l.ended, l.err
	l.mu.Unlock()
	if ended {
		return err
	}
	l.d.registry.removeLease(l)
	freed, err := l.d.backend.Release(ctx, l)
	if err != nil {
		return err // the caller may call Release again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if !freed && !retried {
		l.err = driver.ErrLost
	}
	return l.err
}

// SetHolder implements [driver.Lease].
func (l *Lease) SetHolder(ctx context.Context, h driver.Holder) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l.HasEnded() {
		return driver.ErrLost
	}
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	found, err := l.d.backend.SetHolder(ctx, l, newEntry(driver.Request{Holder: h}, ""))
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}

// FailAll answers all renewals with an error.
func FailAll(answers []driver.Renewal, err error) []driver.Renewal {
	for i := range answers {
		answers[i] = driver.Renewal{Err: err}
	}
	return answers
}
