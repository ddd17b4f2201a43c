package demo

import (
	"slices"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest"
)

// redlockSplitVote is three clients that ask five nodes at the same time.
func redlockSplitVote() Demo {
	const split = "A A B B C"
	broken := func(s *Director) {
		const ttl = 4 * time.Second // a round takes a few milliseconds
		r := s.Redlock(pattern.NaiveRedlock)
		start := func(name string, first int) *Client {
			spec := r.Spec(name, pattern.NaiveRedlock, ttl)
			spec.First = first - 1
			return s.start(spec)
		}
		a, b, c := start("A", 1), start("B", 3), start("C", 5)
		s.Begin()
		for round := range 3 {
			if round > 0 {
				r.AwaitHolders("- - - - -")
				r.Say("the TTL is over; for %s nobody had the lock, and nobody could get it", shortly(ttl))
			}
			a.Try(Before("it asks node 3"))
			b.Try(Before("it asks node 5"))
			c.Try(Before("it asks node 1"))
			a.GoOn()
			b.GoOn()
			c.GoOn()
			if r.holders() != split {
				s.tooBusy() // keys have ended before the round was over
			}
			s.count(&s.damage.Split)
		}
	}
	right := func(s *Director) {
		const ttl = time.Minute // no lease ends here
		r := s.Redlock(pattern.SnibRedlock)
		var clients []*Client
		var far []*livetest.Proxy
		for _, of := range []struct {
			name string
			near []int // the indexes of the nodes that hear of the client first
		}{{"A", []int{0, 1}}, {"B", []int{2, 3}}, {"C", []int{4}}} {
			spec := r.Spec(of.name, pattern.SnibRedlock, ttl)
			for i, n := range r.nodes {
				if !slices.Contains(of.near, i) {
					proxy := livetest.NewProxy(s.TB(), n.Addr())
					far = append(far, proxy)
					spec.Route[n.Addr()] = proxy.Addr()
				}
			}
			c := s.start(spec)
			clients = append(clients, c)
			r.AwaitConnected(c)
		}
		s.Begin()
		arrive := livetest.All(far, (*livetest.Proxy).Stall)
		for _, c := range clients {
			c.Begin()
		}
		r.AwaitHolders(split)
		r.Say("the votes are split: nobody has three")
		s.count(&s.damage.Split)
		arrive()
		for range clients {
			var holder *Client
			s.Await("somebody to get the lock", func() bool {
				i := slices.IndexFunc(clients, (*Client).Holds)
				if i >= 0 {
					holder = clients[i]
				}
				return i >= 0
			})
			holder.Finish()
			holder.Work()
			holder.Release()
		}
	}
	return Demo{
		Name:    "redlock-split-vote",
		Title:   "three clients split the votes of Redlock",
		Story:   "A, B and C ask five nodes at the same time. A gets two of them, B gets two, and C gets one: nobody has a majority.",
		Clients: []string{"A", "B", "C"},
		Server:  "nodes 1-5",
		Broken:  Variant{Title: "losers leave their keys, and all try again after the same time", run: broken, want: Damage{Split: 3}},
		Right:   Variant{Title: "snib frees what it got at once, and tries again after a random time", run: right, want: Damage{Split: 1}},
		Advice:  "A loser frees at once what it has got, and waits for a random time before it tries again, as snib's Redlock does.",
		Page:    "docs/from-setnx.md#redlock-split-vote",
	}
}
