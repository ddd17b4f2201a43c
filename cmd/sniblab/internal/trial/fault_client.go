package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Faults of the processes of clients.

func pause(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d := ttls(rng, 0.8, 2.2)
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		if c.holds(ctx, id) {
			end := b.begin("pause", c.owner().worker)
			c.stopFor(ctx, d, func() {})
			end()
			if c.stay(ctx, id, TTL/2) {
				c.finish(ctx, id)
			}
		}
		c.release(ctx, id)
	}})
}

func lateWrite(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d := ttls(rng, 1.3, 2.2)
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		if c.holds(ctx, id) {
			end := b.begin("late-write", c.owner().worker)
			c.stopFor(ctx, d, func() { c.write(id, b.now()) })
			end()
			c.stay(ctx, id, 5*sampling)
		}
		c.release(ctx, id)
	}})
}

func killHolder(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d := time.Duration(rng.IntN(20)) * time.Millisecond
	b.let(ctx, victim, variant{holding: func(c *client, _ int64) {
		c.sleep(ctx, d)
		c.restart(ctx, "kill")
	}})
}

// whileWaiting has another client hold the lock for a while, and then a client do something to
// itself while it waits. It waits unless it has got the lock before the other one.
func (b *trial) whileWaiting(ctx context.Context, victim *client, do func(c *client) (waits bool)) {
	other := b.clients[(victim.number+1)%len(names)]
	b.whileHeld(ctx, other, func() {
		i := interruption{do: do, done: make(chan struct{})}
		select {
		case victim.interruptions <- i:
			awaitOr(ctx, i.done, 4*TTL)
		case <-time.After(TTL): // it does not wait
		case <-ctx.Done():
		}
	})
}

func stopWaiter(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d := ttls(rng, 0.5, 2)
	b.whileWaiting(ctx, victim, func(c *client) bool {
		end := b.begin("stop-waiter", c.owner().worker)
		c.stopFor(ctx, d, func() {})
		end()
		return true
	})
}

func killWaiter(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	b.whileWaiting(ctx, victim, func(c *client) bool {
		c.restart(ctx, "kill-waiter")
		return false
	})
}

// crowdSize is how many clients more there are in a crowd.
const crowdSize = 12

// hastyWork is for how long the lock is held while a crowd gets it: long enough for those who are
// woken to ask the store before the next hand-over.
const hastyWork = sampling

// crowd has more clients wait while a client holds the lock, and counts the commands of that time,
// such as those of polling and of heartbeats. Then each client holds the lock for a moment only, so
// most of what the store executes belongs to hand-overs.
func crowd(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	extra := b.gather(ctx, victim)
	defer func() {
		for _, c := range extra {
			c.kill()
		}
	}()
	if ctx.Err() != nil {
		return
	}
	number := int64(b.extras)
	b.during("crowd", func() {
		all, over := context.WithCancel(ctx)
		defer over()
		var running sync.WaitGroup
		lineUp := sync.OnceFunc(func() {
			time.AfterFunc(3*TTL, over)
			for _, c := range extra {
				running.Go(func() {
					c.cycle(all)
					b.end(c)
				})
			}
		})
		b.let(ctx, victim, variant{holding: func(c *client, id int64) {
			lineUp()
			b.countWaiting(ctx, c, id, number)
			b.hasty.Store(all.Err() == nil) // it may come to this late
			c.release(ctx, id)
		}})
		lineUp() // if the victim has not got the lock
		running.Wait()
		b.logCommands("crowd", number)
		b.hasty.Store(false)
	})
}

// countWaiting counts commands while a crowd waits for the lock that c holds. The hold is shorter
// than the TTL, because a lease without renewals would end.
func (b *trial) countWaiting(ctx context.Context, c *client, id, crowd int64) {
	if !c.stay(ctx, id, 2*TTL/5) { // until all have asked for the lock
		return
	}
	b.logCommands("crowd", crowd)
	if c.stay(ctx, id, TTL/5) {
		c.finish(ctx, id)
		b.logCommands("crowd", crowd)
	}
}

// gather starts the clients of a crowd, which use the victim's way to the store.
func (b *trial) gather(ctx context.Context, victim *client) (extra []*client) {
	var starting sync.WaitGroup
	turns := make(chan struct{}, 4) // twelve JVMs at once would take too long to get ready
	for range crowdSize {
		b.extras++
		c := b.newClient(len(names)+b.extras, fmt.Sprintf("D%d.", b.extras))
		c.way = victim.number
		extra = append(extra, c)
		starting.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := c.start(ctx); err != nil && ctx.Err() == nil {
				b.stop(err)
			}
		})
	}
	starting.Wait()
	return extra
}

// stepClient returns a fault that sets the clock of a holder, forward or back.
func stepClient(name string, direction int) func(context.Context, *trial, *client, *rand.Rand) {
	return func(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
		by := time.Duration(direction) * ttls(rng, 2, 4)
		b.let(ctx, victim, variant{holding: func(c *client, id int64) {
			owner := c.owner()
			end := b.begin(name, owner.worker)
			b.store.clientClocks[owner.number].StepClock(by)
			end()
			if c.stay(ctx, id, 3*TTL/2) {
				c.finish(ctx, id)
			}
			c.release(ctx, id)
		}})
	}
}
