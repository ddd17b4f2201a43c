package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// setnxExpire is the crash between SETNX and EXPIRE.
func setnxExpire() Demo {
	const ttl = 2 * time.Second
	run := func(p pattern.Name, wait ...Option) func(*Director) {
		return func(s *Director) {
			r := s.Redis()
			a, b := r.Client("A", p, ttl), r.Client("B", p, ttl)
			a.Acquire(Before("EXPIRE"))
			a.Kill()
			if !b.Acquire(wait...) && !b.Finish() {
				s.Say(serverLane, "A is dead, and its key stays")
				s.count(&s.damage.Blocked)
				return
			}
			b.Work()
			b.Release()
		}
	}
	return Demo{
		Name:    "setnx-expire",
		Title:   "a crash between SETNX and EXPIRE",
		Story:   "SETNX makes the key of the lock, and EXPIRE gives it a TTL of 2 s. A is killed between the two commands.",
		Clients: []string{"A", "B"},
		Broken:  Variant{Title: "SETNX, then EXPIRE", run: run(pattern.SetnxExpire, GiveUpAfter(2*ttl)), want: Damage{Blocked: 1}},
		Right:   Variant{Title: "SET … NX PX: one command makes the key with its TTL", run: run(pattern.SetNX)},
		Advice:  "Make the key and its TTL by one command, SET key value NX PX milliseconds, as snib does.",
		Page:    "docs/from-setnx.md#setnx-expire",
	}
}
