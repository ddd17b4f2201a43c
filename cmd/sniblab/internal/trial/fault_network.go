package trial

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// Faults of the network between clients and servers.

// acquirePlaces is how many requests of an acquisition can lose their answers.
const acquirePlaces = 3

// loseAnswer loses the answer to the request of a client after so many others. The returned
// channel is closed then.
func (c *client) loseAnswer(ctx context.Context, place int, then livetest.Ending) (lost <-chan struct{}) {
	for range place {
		awaitOr(ctx, c.ways()[0].Sent(""), TTL/4)
	}
	for _, way := range c.ways() {
		lost = way.LoseAnswers(1, then)
	}
	return lost
}

// crash kills a client in the middle of an acquisition. It may need several tries to meet the lock
// when it is free.
func crash(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	for range 4 {
		place := rng.IntN(acquirePlaces)
		b.let(ctx, victim, variant{acquiring: func(c *client, _ int64) {
			awaitOr(ctx, c.loseAnswer(ctx, place, livetest.ThenHang), TTL/4)
			c.restart(ctx, "crash")
		}})
	}
}

func lostAcquire(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	for range 2 {
		place := rng.IntN(acquirePlaces)
		b.let(ctx, victim, variant{asked: func(c *client) {
			b.during("lost-acquire", func() { awaitOr(ctx, c.loseAnswer(ctx, place, livetest.ThenClose), TTL/4) })
		}, over: (*client).heal, holding: func(c *client, id int64) { // there may have been no such request
			if c.stay(ctx, id, TTL/2) {
				c.finish(ctx, id)
			}
			c.release(ctx, id)
		}})
	}
}

func lostRenewal(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		held := false
		b.during("lost-renewal", func() {
			c.loseAnswer(ctx, 0, livetest.ThenClose)
			held = c.stay(ctx, id, 3*TTL/2)
		})
		if held {
			c.finish(ctx, id)
		}
		c.release(ctx, id)
		c.heal()
	}})
}

func lostRelease(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		c.finish(ctx, id)
		b.during("lost-release", func() {
			c.loseAnswer(ctx, 0, livetest.ThenClose)
			c.release(ctx, id)
		})
		c.heal()
	}})
}

// slowAcquire may need several tries to meet the lock when it is free.
func slowAcquire(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d := ttls(rng, 1.1, 1.4)
	var granted atomic.Bool
	for try := 0; try < 3 && !granted.Load() && ctx.Err() == nil; try++ {
		end := func() {}
		b.let(ctx, victim, variant{before: func(c *client) {
			end = b.begin("slow-acquire", "")
			c.ways()[len(c.ways())-1].Delay(0, d)
		}, over: func(c *client) {
			c.delay(0, 0)
			end()
		}, holding: func(c *client, id int64) {
			granted.Store(true)
			if c.stay(ctx, id, TTL/2) {
				c.finish(ctx, id)
			}
			c.release(ctx, id)
		}})
	}
}

func slowRelease(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d, requests := ttls(rng, 1.1, 1.5), rng.IntN(2) == 0
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		c.finish(ctx, id)
		b.during("slow-release", func() {
			if requests {
				c.delay(d, 0)
			} else {
				c.delay(0, d)
			}
			c.release(ctx, id)
			c.delay(0, 0)
		})
	}})
}

func (c *client) delay(toServer, toClient time.Duration) {
	for _, way := range c.ways() {
		way.Delay(toServer, toClient)
	}
}

func (c *client) heal() {
	for _, way := range c.ways() {
		way.Heal()
	}
}

func delay(ctx context.Context, b *trial, _ *client, rng *rand.Rand) {
	b.during("delay", func() {
		for _, way := range b.store.allWays() {
			way.Delay(time.Duration(10+rng.IntN(30))*time.Millisecond, time.Duration(10+rng.IntN(30))*time.Millisecond)
		}
		b.wait(ctx, 2*time.Second)
		for _, way := range b.store.allWays() {
			way.Delay(0, 0)
		}
	})
}

func stall(ctx context.Context, b *trial, _ *client, _ *rand.Rand) {
	b.during("stall", func() {
		for range 10 {
			heal := livetest.All(b.store.allWays(), (*livetest.Proxy).Stall)
			b.wait(ctx, 100*time.Millisecond)
			heal()
			b.wait(ctx, 100*time.Millisecond)
		}
	})
}

// disconnect does something to the network of a holder, which works on.
func (b *trial) disconnect(ctx context.Context, name string, victim *client, d time.Duration,
	begin func(*client) (heal func())) {
	b.let(ctx, victim, variant{holding: func(c *client, id int64) {
		held := false
		b.during(name, func() {
			heal := begin(c)
			held = c.stay(ctx, id, d)
			heal()
		})
		if held {
			c.finish(ctx, id)
		}
		c.release(ctx, id)
	}})
}

func cut(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	b.disconnect(ctx, "cut", victim, ttls(rng, 1.2, 2), func(c *client) func() { return livetest.All(c.ways(), (*livetest.Proxy).Sever) })
}

func lateCut(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	b.disconnect(ctx, "late-cut", victim, ttls(rng, 1.2, 2), func(c *client) func() { return livetest.All(c.ways(), (*livetest.Proxy).Stall) })
}

func noAnswers(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	const all = 1 << 30
	b.disconnect(ctx, "no-answers", victim, ttls(rng, 1.2, 2), func(c *client) func() {
		for _, way := range c.ways() {
			way.LoseAnswers(all, livetest.ThenHang)
		}
		return c.heal
	})
}
