package demo

import (
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
)

// pausedClient is a client that stands still while its lease ends, and then writes.
func pausedClient() Demo {
	const ttl = 2 * time.Second
	run := func(p pattern.Name) func(*Director) {
		return func(s *Director) {
			r := s.Redis()
			a, b := r.Client("A", p, ttl), r.Client("B", p, time.Minute)
			s.runPause(a, b, "SET", r.AwaitExpiry)
		}
	}
	return Demo{
		Name:  "paused-client",
		Title: "a client is paused, and writes when its lease is over",
		Story: "A holds the lock, has read the stock, and is about to write. Just then it is paused, for longer than its TTL of 2 s. " +
			"Then it goes on where it stopped.",
		Clients: []string{"A", "B"},
		Broken:  Variant{Title: "SET … NX PX is all that protects the stock", run: run(pattern.SetNX), want: Damage{Lost: 1}},
		Right:   Variant{Title: "snib gives B a greater token, and the stock refuses A's", run: run(pattern.FencedSnib)},
		Advice: "No lock can stop a client that has looked at it before the pause: let the resource check fencing tokens, " +
			"as snib's packages fence and redisfence do, and claim it before you read.",
		Page: "docs/from-setnx.md#paused-client",
	}
}

// runPause runs a pause of A before it writes. It begins with a given command. B sells while A is
// paused, after awaitEnd, which waits until the server has freed A's lock.
func (s *Director) runPause(a, b *Client, write string, awaitEnd func()) {
	a.Acquire()
	a.Work(Before(write))
	a.Pause()
	awaitEnd()
	b.Acquire()
	b.Finish()
	b.Work()
	b.Release()
	a.Resume()
	a.GoOn()
	if !a.Refused() {
		s.Say(serverLane, "stock is still %d: B's sale is lost", s.redis.stock())
		a.Release()
		return
	}
	a.AwaitLoss() // it is told that, too
	a.Release()
	a.Acquire()
	a.Finish()
	a.Work()
	a.Release()
}
