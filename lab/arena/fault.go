package arena

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// A fault is something that the director makes go wrong. It records when.
type fault struct {
	name  string
	about string

	needsServer bool
	forgets     bool // the server loses its data, which others than Redis don't
	kills       bool // it kills processes of clients
	extra       bool // it is for controls that name it

	do func(ctx context.Context, b *bout, victim *client, rng *rand.Rand)
}

// A FaultInfo describes a fault.
type FaultInfo struct{ Name, About string }

// Faults describes all faults.
func Faults() []FaultInfo {
	var all []FaultInfo
	for _, f := range faults() {
		all = append(all, FaultInfo{f.name, f.about})
	}
	return all
}

func faults() []fault {
	return []fault{
		{name: "pause", about: "a holder is stopped (SIGSTOP) for 0.8 to 2.2 TTLs, and then works on", do: pause},
		{name: "late-write", about: "a holder is stopped for more than a TTL, just after it has looked at the lock; its write arrives then", do: lateWrite},
		{name: "kill", about: "a holder is killed (kill -9), and started again", kills: true, do: killHolder},
		{name: "crash", about: "a client that acquires is killed after the server's answer to one of its requests, the first to the third, was lost", kills: true, needsServer: true, do: crash},
		{name: "slow-release", about: "the requests, or the answers, of a client that releases are late by more than a TTL", needsServer: true, do: slowRelease},
		{name: "delay", about: "all requests and answers take 10 to 40 ms, for two seconds", needsServer: true, do: delay},
		{name: "cut", about: "a holder is cut off from the server, without being told, for 1.2 to 2 TTLs", needsServer: true, do: cut},
		{name: "store-pause", about: "the server is stopped (SIGSTOP) for 0.5 to 2 TTLs", needsServer: true, do: pauseStore},
		{name: "store-restart", about: "the server is killed and restarted, with its memory", needsServer: true, do: restartStore},
		{name: "store-forget", about: "the server is killed and restarted, without its memory; Redis only", needsServer: true, forgets: true, do: forgetStore},
	}
}

// ttls returns a random time between so many TTLs.
func ttls(rng *rand.Rand, from, to float64) time.Duration {
	return time.Duration((from + rng.Float64()*(to-from)) * float64(TTL))
}

// let has a client do an act, and waits for its end. If the client does not come to it, because
// it does not get the lock, let gives up.
func (b *bout) let(ctx context.Context, c *client, a act) {
	a.done = make(chan struct{})
	select {
	case c.acts <- a:
	case <-ctx.Done(): // nobody takes the one before
		return
	}
	wait := time.NewTimer(4 * TTL)
	defer wait.Stop()
	select {
	case <-a.done:
	case <-ctx.Done():
	case <-wait.C:
		select {
		case <-c.acts: // it has not taken it
		case <-a.done:
		case <-time.After(4 * TTL):
		case <-ctx.Done():
		}
	}
}

// stopFor stops the process of a client for a time. before is called just before it goes on.
func (c *client) stopFor(ctx context.Context, d time.Duration, before func()) {
	owner := c.owner()
	end := c.b.begin(history.StopWorker, owner.worker)
	if err := owner.process.Stop(); err != nil {
		c.b.failf("stop %s: %w", owner.worker, err)
	}
	c.sleep(ctx, d)
	before()
	if err := owner.process.Resume(); err != nil {
		c.b.failf("resume %s: %w", owner.worker, err)
	}
	end()
	owner.resumed.Store(c.b.now())
}

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

// restart kills the process of a client as a crash would, and starts it again.
func (c *client) restart(ctx context.Context, fault string) {
	end := c.b.begin(fault, c.worker)
	c.b.begin(history.KillWorker, c.worker)()
	c.kill()
	end()
	if w := c.way(); w != nil {
		w.Heal()
	}
	if err := c.start(ctx); err != nil && ctx.Err() == nil {
		c.b.stop(err)
	}
}

func killHolder(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := time.Duration(rng.IntN(20)) * time.Millisecond
	b.let(ctx, victim, act{holding: func(c *client, _ int64) {
		c.sleep(ctx, d)
		c.restart(ctx, "kill")
	}})
}

// crash kills a client in the middle of an acquisition. It may need several tries to meet the lock
// when it is free.
func crash(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	for range 4 {
		place := rng.IntN(3)
		b.let(ctx, victim, act{acquiring: func(c *client, _ int64) {
			for range place {
				awaitOr(ctx, c.way().Sent(""), TTL/4)
			}
			awaitOr(ctx, c.way().LoseAnswers(1, livetest.ThenHang), TTL/4)
			c.restart(ctx, "crash")
		}})
	}
}

// awaitOr waits for ch, or for a time.
func awaitOr(ctx context.Context, ch <-chan struct{}, d time.Duration) {
	select {
	case <-ch:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func slowRelease(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d, requests := ttls(rng, 1.1, 1.5), rng.IntN(2) == 0
	b.let(ctx, victim, act{holding: func(c *client, id int64) {
		c.finish(ctx, id)
		end := b.begin("slow-release", "")
		if requests {
			c.way().Delay(d, 0)
		} else {
			c.way().Delay(0, d)
		}
		c.release(ctx, id)
		c.way().Delay(0, 0)
		end()
	}})
}

func delay(ctx context.Context, b *bout, _ *client, rng *rand.Rand) {
	defer b.begin("delay", "")()
	for _, way := range b.store.ways {
		way.Delay(time.Duration(10+rng.IntN(30))*time.Millisecond, time.Duration(10+rng.IntN(30))*time.Millisecond)
	}
	b.await(ctx, 2*time.Second, func() bool { return false })
	for _, way := range b.store.ways {
		way.Delay(0, 0)
	}
}

func cut(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := ttls(rng, 1.2, 2)
	b.let(ctx, victim, act{holding: func(c *client, id int64) {
		end := b.begin("cut", "")
		heal := c.way().Sever()
		held := c.stay(ctx, id, d)
		heal()
		end()
		if held {
			c.finish(ctx, id)
		}
		c.release(ctx, id)
	}})
}

// whileHeld does something to the store while a client holds the lock for more than a TTL.
func (b *bout) whileHeld(ctx context.Context, c *client, do func()) {
	held, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		b.let(ctx, c, act{holding: func(c *client, id int64) {
			close(held)
			if c.stay(ctx, id, 3*TTL/2) {
				c.finish(ctx, id)
			}
			c.release(ctx, id)
		}})
	}()
	select {
	case <-held:
		do()
	case <-done: // it does not get the lock
	}
	<-done
}

func pauseStore(ctx context.Context, b *bout, victim *client, rng *rand.Rand) {
	d := ttls(rng, 0.5, 2)
	b.whileHeld(ctx, victim, func() {
		defer b.begin("store-pause", "")()
		b.store.server.Hang()
		b.await(ctx, d, func() bool { return false })
		b.store.server.Resume()
	})
}

func restartStore(ctx context.Context, b *bout, victim *client, _ *rand.Rand) {
	b.whileHeld(ctx, victim, func() {
		defer b.begin("store-restart", "")()
		b.store.server.Kill()
		b.store.server.Restart()
	})
}

func forgetStore(ctx context.Context, b *bout, victim *client, _ *rand.Rand) {
	b.whileHeld(ctx, victim, func() {
		defer b.begin("store-forget", "")()
		b.store.forget()
	})
}
