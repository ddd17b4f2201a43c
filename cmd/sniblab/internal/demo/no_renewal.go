package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// noRenewal is work that takes longer than the TTL.
func noRenewal() Demo {
	const ttl = 3 * time.Second
	broken := func(s *Director) {
		r := s.Redis()
		a, b := r.Client("A", pattern.SetNX, ttl), r.Client("B", pattern.SetNX, time.Minute)
		a.Acquire()
		a.Work(Before("SET"))
		if !b.Try() {
			r.AwaitExpiry()
			b.Acquire()
		}
		b.Work()
		b.Release()
		a.GoOn()
		a.Release()
	}
	right := func(s *Director) {
		r := s.Redis()
		a, b := r.Client("A", pattern.Snib, ttl), r.Client("B", pattern.Snib, ttl)
		a.Acquire()
		a.Work(Before("SET"))
		b.Acquire()
		for range 5 { // one comes every third of the TTL
			a.Renewal()
		}
		a.GoOn()
		a.Release()
		b.Finish()
		b.Work()
		b.Release()
	}
	return Demo{
		Name:    "no-renewal",
		Title:   "the work takes longer than the TTL",
		Story:   "A works for longer than its TTL of 3 s. B waits for the lock.",
		Clients: []string{"A", "B"},
		Broken:  Variant{Title: "SET … NX PX, and nothing renews the TTL", run: broken, want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "snib renews the lease every third of the TTL", run: right},
		Advice:  "Have the lock renewed for as long as you work, as snib does, and stop when it is lost.",
		Page:    "docs/from-setnx.md#no-renewal",
	}
}
