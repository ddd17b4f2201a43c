package arena

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Faults of the processes of clients.

func pause(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := ttls(rng, 0.8, 2.2)
	b.let(ctx, victim, act{holding: func(c *client, id int64) {
		if c.ask(ctx, id) {
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

func lateWrite(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := ttls(rng, 1.3, 2.2)
	b.let(ctx, victim, act{holding: func(c *client, id int64) {
		if c.ask(ctx, id) {
			end := b.begin("late-write", c.owner().worker)
			c.stopFor(ctx, d, func() { c.write(id) })
			end()
			c.stay(ctx, id, 5*sampling)
		}
		c.release(ctx, id)
	}})
}

func killHolder(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := time.Duration(rng.IntN(20)) * time.Millisecond
	b.let(ctx, victim, act{holding: func(c *client, _ int64) {
		c.sleep(ctx, d)
		c.restart(ctx, "kill")
	}})
}

// whileWaiting has another client hold the lock for a while, and then a client do something to
// itself while it waits. It waits unless it has got the lock before the other one.
func (b *bout) whileWaiting(ctx context.Context, victim *client, do func(c *client) (waits bool)) {
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

func stopWaiter(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := ttls(rng, 0.5, 2)
	b.whileWaiting(ctx, victim, func(c *client) bool {
		end := b.begin("stop-waiter", c.owner().worker)
		c.stopFor(ctx, d, func() {})
		end()
		return true
	})
}

func killWaiter(ctx context.Context, b *bout, victim *client, _ *rand.Rand) {
	b.whileWaiting(ctx, victim, func(c *client) bool {
		c.restart(ctx, "kill-waiter")
		return false
	})
}

// crowdSize is how many clients more there are in a crowd.
const crowdSize = 12

func crowd(ctx context.Context, b *bout, victim *client, _ *rand.Rand) {
	var extra []*client
	var starting sync.WaitGroup
	for range crowdSize {
		b.extras++
		c := b.newClient(len(names)+b.extras, fmt.Sprintf("D%d.", b.extras))
		c.way = victim.number
		extra = append(extra, c)
		starting.Go(func() {
			if err := c.start(ctx); err != nil && ctx.Err() == nil {
				b.stop(err)
			}
		})
	}
	starting.Wait()
	defer func() {
		for _, c := range extra {
			c.kill()
		}
	}()
	if ctx.Err() != nil {
		return
	}
	b.during("crowd", func() {
		all, over := context.WithTimeout(ctx, 3*TTL)
		defer over()
		var running sync.WaitGroup
		for _, c := range extra {
			running.Go(func() {
				c.cycle(all)
				b.end(c)
			})
		}
		running.Wait()
	})
}

// stepClient returns a fault that sets the clock of a holder, forward or back.
func stepClient(name string, direction int) func(context.Context, *bout, *client, *rand.Rand) {
	return func(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
		by := time.Duration(direction) * ttls(rng, 2, 4)
		b.let(ctx, victim, act{holding: func(c *client, id int64) {
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
