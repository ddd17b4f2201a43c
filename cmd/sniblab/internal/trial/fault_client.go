package trial

import (
	"context"
	"math/rand/v2"
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
