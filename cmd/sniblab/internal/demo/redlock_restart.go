package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// redlockRestart is a node of Redlock that forgets the lock.
func redlockRestart() Demo {
	run := func(p pattern.Name) func(*Director) {
		const ttl = time.Minute // no lease ends in this demo
		return func(s *Director) {
			r := s.Redlock(p)
			a := r.Client("A", p, ttl, 4, 5)
			a.Acquire()
			a.Work(Before("SET"))
			r.Restart(3)
			b := r.Client("B", p, ttl)
			b.Begin()
			if r.snib {
				s.Await("B to ask", func() bool { return b.Holds() || r.AskedInVain(4) })
				s.Say("B", "gets 4 and 5 only, frees them, and waits")
				r.Say("node 3 may have forgotten a lock: it takes no part for 1 min")
				a.GoOn()
				r.Heal()
				a.Release()
			}
			b.Finish()
			b.Work()
			b.Release()
			if !r.snib {
				a.GoOn()
				r.Heal()
				a.Release()
			}
		}
	}
	return Demo{
		Name:  "redlock-restart",
		Title: "a node of Redlock restarts without its memory",
		Story: "Five nodes keep the lock. A reaches only 1, 2 and 3, which is a majority. Node 3 is killed and restarts empty, " +
			"so that 3, 4 and 5 know nothing of A.",
		Clients: []string{"A", "B"},
		Server:  "nodes 1-5",
		Broken:  Variant{Title: "SET NX PX at each node, and a majority decides", run: run(pattern.NaiveRedlock), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "snib keeps a node out that has restarted", run: run(pattern.SnibRedlock)},
		Advice: "Keep a node out after a restart until all leases that it may have forgotten are over, as snib's Redlock does, " +
			"or give it a log that it writes at once (appendfsync always).",
		Page: "docs/from-setnx.md#redlock-restart",
	}
}
