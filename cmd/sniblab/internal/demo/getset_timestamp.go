package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// getsetTimestamp is the lock that contains the time of its end, by the clocks of clients.
func getsetTimestamp() Demo {
	const (
		ttl   = 30 * time.Second
		short = 2 * time.Second // of B's lock, which must end
		ahead = time.Minute
	)
	// open starts the clients. C's clock is wrong.
	open := func(s *Director, p pattern.Name) (r *redisServer, a, b, c *Client) {
		r = s.Redis()
		a, b, c = r.Client("A", p, ttl), r.Client("B", p, short), r.Client("C", p, ttl, ahead)
		s.Say("C", "its clock is %.0f s ahead", ahead.Seconds())
		return r, a, b, c
	}
	broken := func(s *Director) {
		r, a, b, c := open(s, pattern.Getset)
		a.Acquire()
		a.Work(Before("SET"))
		if c.Try() { // by C's clock, A's time is over
			c.Work()
		}
		a.GoOn()
		a.Release() // of C's lock
		c.Release()

		b.Acquire()
		b.Kill()
		end := time.Now().Add(short + time.Millisecond) // the time in the lock is rounded
		s.Await("the end of B's lock", func() bool { return time.Now().After(end) })
		s.Say(serverLane, "B's time is over")
		a.Try(Before("GETSET"))
		c.Try(Before("GETSET"))
		a.GoOn()
		before := r.lock()
		c.GoOn()
		if !c.Holds() && r.lock() != before {
			s.count(&s.damage.Overwritten)
			s.Say(serverLane, "A's lock now ends at C's time")
		}
		a.Work()
		a.Release()
	}
	right := func(s *Director) {
		_, a, b, c := open(s, pattern.SetNX)
		a.Acquire()
		a.Work(Before("SET"))
		if c.Try() {
			c.Work()
		}
		a.GoOn()
		a.Release()

		b.Acquire()
		b.Kill()
		a.Acquire()
		a.Finish()
		c.Try()
		a.Work()
		a.Release()
	}
	return Demo{
		Name:    "getset-timestamp",
		Title:   "a lock with the time of its end in it, and clocks that differ",
		Story:   "The value of the key is when the lock ends, here in seconds since the begin. Who finds that time in the past puts in a new one by GETSET, and has the lock if GETSET answers the old one.",
		Clients: []string{"A", "B", "C"},
		Broken:  Variant{Title: "SETNX, GET and GETSET, with times of the clients' clocks", run: broken, want: Damage{Together: 1, Lost: 1, Overwritten: 1}},
		Right:   Variant{Title: "SET … NX PX: only the server's clock counts", run: right},
		Advice:  "Let the server count down the TTL (PX), and keep the clocks of clients out of the lock, as snib does.",
		Page:    "docs/from-setnx.md#getset-timestamp",
	}
}
