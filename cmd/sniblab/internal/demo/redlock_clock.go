package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// redlockClock is a node of Redlock whose clock jumps.
func redlockClock() Demo {
	const (
		ttl  = 10 * time.Second
		jump = 11 * time.Second
	)
	run := func(p pattern.Name) func(*Director) {
		return func(s *Director) {
			r := s.Redlock(p)
			a := r.Client("A", p, ttl, 4, 5)
			b := r.Client("B", p, ttl)
			a.MayLose()
			a.Acquire()
			a.Work(Before("SET"))
			if r.snib {
				a.Renewal() // the next one, which would take node 3 back, is seconds away
			}
			r.Jump(3, jump)
			b.Acquire()
			b.Work()
			b.Release()
			a.GoOn()
			r.Heal()
			a.Release()
			if a.Refused() {
				a.Acquire()
				a.Work()
				a.Release()
			}
		}
	}
	return Demo{
		Name:  "redlock-clock",
		Title: "the clock of a node of Redlock jumps",
		Story: "The lock has a TTL of 10 s. A reaches the nodes 1, 2 and 3 only, and has it there. Then the clock of node 3 jumps ahead by 11 s, " +
			"and the key ends there at once. (The demo shortens the TTL on node 3 by 11 s, which is what such a jump does.)",
		Clients: []string{"A", "B"},
		Server:  "nodes 1-5",
		Broken:  Variant{Title: "the lock is all that protects the stock", run: run(pattern.NaiveRedlock), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "snib gives B a greater token, and the stock refuses A's", run: run(pattern.FencedRedlock), want: Damage{Together: 1}},
		Advice: "No lock that ends by clocks can prevent that two hold it when a clock jumps: let the resource check the token of snib's Redlock, " +
			"and keep the nodes' clocks from being set (chronyd or ntpd that only slew).",
		Page: "docs/from-setnx.md#redlock-clock",
	}
}
