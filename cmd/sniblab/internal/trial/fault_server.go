package trial

import (
	"context"
	"math/rand/v2"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/livetest"
)

// strike returns the fault of servers with a name, which happens while a client holds the lock.
func strike(name string) func(context.Context, *trial, *client, *rand.Rand) {
	return func(ctx context.Context, b *trial, victim *client, rng *rand.Rand) {
		d, step := ttls(rng, 0.5, 2), ttls(rng, 2, 4)
		b.store.Do(name, servers.Strike{
			Rand: rng, Step: step, Wait: func() { b.wait(ctx, d) },
			Hold: func(fail func()) { b.whileHeld(ctx, victim, func() { b.during(name, fail) }) },
		})
		b.store.reviveAny()
		if b.store.Settle != nil {
			b.store.Settle()
		}
		if name == "disk-full" {
			b.await(ctx, livetest.Patience, func() bool {
				b.store.reviveAny() // PostgreSQL may first fail to recover from what it could not write, and then end
				_, err := b.store.version()
				return err == nil
			})
		}
	}
}

// reviveAny restarts the server that the next fault would hit if it has ended by itself, as MariaDB
// may when its clock goes back, also long after that, and PostgreSQL when its disk is full. Only
// servers with a shim may do that.
func (s *store) reviveAny() {
	if s.Set == nil || s.Shim == nil {
		return
	}
	of := s.Hit(rand.New(rand.NewPCG(0, 0)))
	if !of.Up() {
		of.Restart()
	}
	of.MayEnd()
}
