package snib

// Kept leases, a part of stage 6: with Keep, a lease that nobody in this process needs stays here
// until another process wants it. The next acquisition in this process needs no request then.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// showKeptAfter is how long a lease has been kept before the store shows that. A lease that is
	// in use most of the time is shown as held.
	showKeptAfter = time.Second

	// askForKeptTimeout is how long an acquisition that must not wait waits nevertheless for another
	// process to give back a lease that it may only keep.
	askForKeptTimeout = 250 * time.Millisecond
)

// isKept reports whether no hold uses the lease at the moment, and the process keeps it.
func (le *lease) isKept() bool { return !le.keptUntil.IsZero() }

// showAt returns when the store is to show that the lease is kept.
func (le *lease) showAt() driver.Instant { return le.keptSince.Add(showKeptAfter) }

// isShownAt reports whether the store should show the lease as kept.
func (le *lease) isShownAt(now driver.Instant) bool { return le.isKept() && le.showAt().Reached(now) }

// keepLocked keeps a lease whose hold has just been released, if that is allowed. It reports
// whether the lease is kept. The name queue has no head then.
func (c *core) keepLocked(le *lease, now driver.Instant) bool {
	q, keep := le.queue, le.hold.locker.conf.keep
	if !le.keepable || keep == 0 || q.waiters.first != nil || c.isClosed || !c.isIdle(le) || !le.canHandOver(now) {
		return false
	}
	le.keptSince, le.keptUntil = now, now.Add(keep)
	q.held, q.kept = false, le
	c.scheduleEarlierLocked(le)
	return true
}

// isIdle reports whether nobody is known to wait for the lock, here or in another process.
func (c *core) isIdle(le *lease) bool {
	return le.tellsWanted && !le.isWanted && c.storeWaiters[le.name] == 0
}

// reuseLocked makes a kept lease the lease of a new hold for l. If that is not possible it returns
// nil, and the caller gives the lease back. Either way the lease is no longer kept.
func (c *core) reuseLocked(le *lease, l *Locker, now driver.Instant) *hold {
	expired := le.endsAt().Reached(now)
	le.keptUntil, le.queue.kept = driver.Instant{}, nil
	if expired || !c.isIdle(le) || !l.conf.canTakeOver(&le.hold.locker.conf) || !le.canHandOver(now) {
		c.keeper.remove(le)
		return nil
	}
	h := le.newHold(l, le.nextToken, now)
	h.reused = true
	le.nextToken++
	le.reuses++
	le.queue.held = true
	c.scheduleEarlierLocked(le)
	if le.shownKept {
		c.showLocked(le)
	}
	return h
}

// endKeepLocked removes a kept lease, and the queue, which has no head. The caller gives the lease
// back, or knows that the store has ended it.
func (c *core) endKeepLocked(le *lease) {
	le.keptUntil, le.queue.kept = driver.Instant{}, nil
	c.keeper.remove(le)
	delete(c.queues, le.name)
}

// giveBackLocked gives a kept lease back to the store, in the background.
func (c *core) giveBackLocked(le *lease) {
	c.endKeepLocked(le)
	go c.giveBack(le)
}

// giveBack releases a lease that is no longer kept. If that fails, the lease lapses by itself.
func (c *core) giveBack(le *lease) {
	_, _ = c.releaseLease(le.granted, le.hold.locker.conf.releaseTimeout)
}

// giveBackFirst gives a lease back before this process asks the store for the lock in another way.
// It returns when the store has answered, or ctx is done.
func (c *core) giveBackFirst(ctx context.Context, le *lease) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.giveBack(le)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// takeKept returns the kept lease of a name, which the caller gives back, or nil.
func (c *core) takeKept(name string) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[name]
	if q == nil || q.kept == nil {
		return nil
	}
	le := q.kept
	c.endKeepLocked(le)
	return le
}

// giveBackAll gives leases back at the same time.
func (c *core) giveBackAll(kept []*lease) {
	var wg sync.WaitGroup
	for _, le := range kept {
		wg.Go(func() { c.giveBack(le) })
	}
	wg.Wait()
}

// handleWanted records that another process waits for the lock, and gives the lease back if it is
// kept.
func (c *core) handleWanted(le *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if le.mergedInto != nil {
		le = le.mergedInto
	}
	if !le.isWanted && le.wanted != nil {
		close(le.wanted)
	}
	le.isWanted = true
	if le.isKept() {
		c.recordWanted(le)
		c.giveBackLocked(le)
	}
}

// askForKept acquires a lease for a request that must not wait, and that the store has refused. The
// lock may be free but for another process that keeps its lease: askForKept waits as long as such a
// process may need to give it back.
func (l *Locker) askForKept(ctx context.Context, req driver.Request) (driver.Lease, error) {
	brief, cancel := context.WithTimeout(ctx, askForKeptTimeout)
	defer cancel()
	req.NoWait, req.UniqueOwner = false, false
	granted, err := l.core.driver.Acquire(brief, req)
	if err != nil && ctx.Err() == nil && brief.Err() != nil && !errors.Is(err, ErrUnavailable) {
		return nil, ErrHeld
	}
	return granted, err
}

// showIfDueLocked makes the store show that a lease is kept, once it has been for a while.
func (c *core) showIfDueLocked(le *lease, now driver.Instant) {
	if le.isShownAt(now) && !le.shownKept {
		c.showLocked(le)
	}
}

// showLocked makes the store show whether the lease is kept or held, in the background.
func (c *core) showLocked(le *lease) {
	if le.showing == nil {
		le.showing = make(chan struct{})
		go c.show(le)
	}
}

// show sets the label that the store shows for a lease, until it is the right one. An error that is
// not a loss ends that: people see the other label until the next change.
func (c *core) show(le *lease) {
	for {
		c.mu.Lock()
		kept, label := le.isShownAt(driver.Now()), le.hold.locker.conf.label
		if over := le.heapIndex < 0; over || le.labeled || kept == le.shownKept {
			close(le.showing)
			le.showing = nil
			if !over {
				c.scheduleEarlierLocked(le)
			}
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if kept {
			label = driver.KeptLabel
		}
		ctx := withLazyDeadline(context.Background(), time.Now().Add(driver.AnswerTimeout))
		err := le.granted.SetLabel(ctx, label)
		ctx.cancel()
		if errors.Is(err, ErrLost) {
			c.handleLost(le, err)
		}
		c.mu.Lock()
		le.shownKept = kept // also after an error
		c.mu.Unlock()
	}
}

// A keeping says how it paid so far to keep the leases of a name. A nil keeping knows nothing. It
// is guarded by core.mu.
type keeping struct {
	tokens int // how many tokens the next lease should reserve
	skip   int // how many leases are still to be acquired without Keep
	pause  int // the last value that skip began with
}

const (
	// minReuses is how often a kept lease must be used again for Keep to pay: if another process
	// wants the lock, that process waits for a message and an answer more than without Keep.
	minReuses = 4

	// maxKeepPause bounds how many leases are acquired without Keep after one for which it did not
	// pay. So processes that take turns lose little.
	maxKeepPause = 64

	// minKeepTokens is the number of tokens that a lease reserves at first. If they are used up within
	// keepTokensFor, the next lease reserves twice as many.
	minKeepTokens = 16
	keepTokensFor = time.Second
)

// skipOne reports whether the next lease is to be acquired without Keep, and counts it.
func (k *keeping) skipOne() bool {
	if k == nil || k.skip == 0 {
		return false
	}
	k.skip--
	return true
}

// tokenCount returns how many tokens the next lease should reserve.
func (k *keeping) tokenCount() int {
	if k == nil {
		return minKeepTokens
	}
	return max(k.tokens, minKeepTokens)
}

// keepingOf returns the keeping of a name. It makes one if there is none.
func (c *core) keepingOf(name string) *keeping {
	k := c.keepings[name]
	if k == nil {
		if len(c.keepings) >= maxWatermarks {
			for other := range c.keepings {
				delete(c.keepings, other)
				break
			}
		}
		k = new(keeping)
		c.keepings[name] = k
	}
	return k
}

// recordWanted records that a kept lease is given back because another process wants the lock.
func (c *core) recordWanted(le *lease) {
	switch k := c.keepingOf(le.name); {
	case le.reuses >= minReuses:
		k.pause = 0
	default:
		k.pause = min(max(1, 2*k.pause), maxKeepPause)
		k.skip = k.pause
	}
}

// recordTokens records how many tokens a lease that could be kept has used, if it used them all.
func (c *core) recordTokens(le *lease, now driver.Instant) {
	if !le.keepable || le.nextToken < le.endToken || now.Sub(le.granted.Grant().Start) > keepTokensFor {
		return
	}
	first := le.granted.Grant().Token
	c.keepingOf(le.name).tokens = int(min(2*(le.endToken-first), maxTokenBlock))
}
