package trial

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pair"
	"github.com/sniblock/snib/internal/livetest"
)

// Faults of the servers.

func pauseStore(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d, server := ttls(rng, 0.5, 2), b.store.hit(rng)
	b.whileHeld(ctx, victim, func() {
		b.during("store-pause", func() {
			server.Hang()
			b.wait(ctx, d)
			server.Resume()
		})
	})
	b.store.settled()
}

func restartStore(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	server := b.store.hit(rng)
	b.whileHeld(ctx, victim, func() {
		b.during("store-restart", func() {
			server.Kill()
			server.Restart()
		})
	})
	b.store.settled()
}

func forgetStore(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	b.whileHeld(ctx, victim, func() {
		b.during("store-forget", func() { forget(b.t, b.store.nodes[0]) })
	})
}

func forgetQuorum(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	n := len(b.store.nodes)
	down := rng.IntN(n)
	b.store.nodes[down].Kill()
	b.whileHeld(ctx, victim, func() {
		b.during("forget-quorum", func() {
			b.store.nodes[down].Restart()
			forget(b.t, b.store.nodes[(down+1)%n])
		})
	})
}

func failover(ctx context.Context, b *trial, victim *client, _ *rand.Rand) {
	b.store.failover(func(fail func()) {
		b.whileHeld(ctx, victim, func() { b.during("failover", fail) })
	})
	b.store.settled()
}

// stepStore returns a fault that sets the clock of a server, forward or back.
func stepStore(name string, direction int) func(context.Context, *trial, *client, *rand.Rand) {
	return func(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
		by := time.Duration(direction) * ttls(rng, 2, 4)
		b.whileHeld(ctx, victim, func() {
			b.during(name, func() { b.store.shim.StepClock(by) })
		})
		b.store.revive(b.store.hit(rng))
	}
}

func fillDisk(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
	d, server := ttls(rng, 0.5, 2), b.store.hit(rng)
	b.whileHeld(ctx, victim, func() {
		b.during("disk-full", func() {
			b.store.shim.FillDisk(true)
			b.wait(ctx, d)
			b.store.shim.FillDisk(false)
		})
	})
	b.await(ctx, livetest.Patience, func() bool {
		b.store.revive(server) // PostgreSQL may first fail to recover from what it could not write, and then end
		_, err := b.store.version()
		return err == nil
	})
}

// reviveAny revives the server that the next fault would hit. It may end by itself, also long after
// its clock went back. Only servers with a shim may do that.
func (s *store) reviveAny() {
	if s.servers == nil || s.shim == nil {
		return
	}
	of := s.hit(rand.New(rand.NewPCG(0, 0)))
	s.revive(of)
	of.MayEnd()
}

// revive restarts a server that has ended by itself, as MariaDB may when its clock goes back, and
// PostgreSQL when its disk is full.
func (s *store) revive(of pair.Server) {
	if !of.Up() {
		of.Restart()
	}
}

// settled waits until the servers are well.
func (s *store) settled() {
	if s.settle != nil {
		s.settle()
	}
}
