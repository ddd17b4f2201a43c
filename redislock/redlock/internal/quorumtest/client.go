package quorumtest

import (
	"cmp"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// A client is a process that takes a lock, holds it, and gives it up, over and over. What follows from the nodes' answers it leaves to
// package quorum.
type client struct {
	actor
	nonce uint64   // of its first attempt
	last  []uint64 // the last token that it saw, by lock
	got   bool     // a lock since the trouble was over
}

// Times of clients.
const (
	thought = 60 * time.Millisecond  // between a release and the next attempt, at most
	backoff = 100 * time.Millisecond // between attempts, at most
	resting = maxTTL / 8             // between renewals that failed
)

// An attempt is one try of a client.
type attempt struct {
	quorum.Attempt
	c       *client
	lock    int
	nonce   uint64
	ttl     time.Duration
	tokens  uint64
	start   driver.Instant
	floor   uint64 // the greatest token of those that were complete when it began
	verdict quorum.Verdict
}

// think waits, and tries.
func (c *client) think(most time.Duration) {
	if !c.got {
		c.after(between(c.rng, 0, most), func() { c.try(c.rng.IntN(c.w.locks), 0) })
	}
}

// try asks for a lock. So many attempts have failed before.
func (c *client) try(lock, failed int) {
	w := c.w
	w.nonces++
	a := &attempt{c: c, lock: lock, nonce: w.nonces, ttl: between(c.rng, maxTTL/4, maxTTL), tokens: 1 + c.rng.Uint64N(3), start: c.instant()}
	if w.broken == SameNonce {
		c.nonce = cmp.Or(c.nonce, a.nonce)
		a.nonce = c.nonce
	}
	a.Attempt, a.floor = w.params.Attempt(a.start, a.ttl), w.judge.greatest[lock]
	ask := Request{Op: Ask, Name: lock, Nonce: a.nonce, TTL: a.ttl, Hint: c.hint(lock), Tokens: a.tokens}
	w.log(c.name, "begins #%d for lock %d", a.nonce, lock)
	for node := range w.nodes {
		c.call(node, ask, func(r Answer) {
			if r.OK {
				a.follow(a.Granted(node, r.Counter, c.instant()), failed)
			} else {
				a.follow(a.Refused(node, c.instant()), failed)
			}
		})
	}
	c.after(a.ttl, func() { a.follow(a.Expired(c.instant()), failed) })
}

// call asks a node. If that does not answer soon, it is taken for one that is not admitted, until it does answer.
func (c *client) call(node int, r Request, answer func(Answer)) {
	answered := false
	c.send(node, r, func(a Answer) {
		answered = true
		answer(a)
	})
	c.after(c.w.patient, func() {
		if !answered {
			answer(Answer{Unadmitted: true})
		}
	})
}

// hint is what the client wants its token to be, at least.
func (c *client) hint(lock int) uint64 {
	next := c.last[lock] + 1
	switch {
	case c.w.cell.hints == clocks:
		return max(c.micros(), next)
	case c.w.cell.hints == wild && chance(c.rng, 20):
		return c.last[lock] + c.rng.Uint64N(4)
	case c.w.cell.hints == wild && chance(c.rng, 2):
		return ^uint64(0)
	}
	return next
}

// follow does what follows from an answer.
func (a *attempt) follow(s quorum.Step, failed int) {
	c, w := a.c, a.c.w
	if a.verdict != quorum.Open {
		if s.Verdict != a.verdict || s.Raise != 0 {
			w.judge.wrong("%s: attempt #%d was %v, and is %+v", c.name, a.nonce, a.verdict, s)
		}
		return
	}
	for node := range s.Raise.All() {
		c.call(node, Request{Op: Raise, Name: a.lock, Nonce: a.nonce, Token: s.Target}, func(r Answer) {
			if r.OK {
				a.follow(a.Raised(node, c.instant()), failed)
			} else {
				a.follow(a.Refused(node, c.instant()), failed)
			}
		})
	}
	a.verdict = s.Verdict
	switch s.Verdict {
	case quorum.Won:
		a.won(s.Target)
	case quorum.Failed:
		w.log(c.name, "fails with #%d", a.nonce)
		c.free(a.lock, a.nonce)
		if failed < 20 {
			c.after(between(c.rng, 0, backoff), func() { c.try(a.lock, failed+1) })
		} else {
			c.think(thought)
		}
	}
}

// free asks all nodes to free the lock, and does not care what they say.
func (c *client) free(lock int, nonce uint64) {
	var keep time.Duration
	if chance(c.rng, 5) {
		keep = between(c.rng, 0, maxTTL/10)
	}
	for node := range c.w.nodes {
		c.send(node, Request{Op: Free, Name: lock, Nonce: nonce, TTL: keep}, func(Answer) {})
	}
}

// A hold is what a client has of an attempt that was won.
type hold struct {
	*attempt
	first, last uint64         // tokens
	end         driver.Instant // of the validity, by the client's clock
	life        uint64         // of the client
	over        bool
}

func (a *attempt) won(target uint64) {
	c, w := a.c, a.c.w
	h := &hold{attempt: a, first: target - a.tokens + 1, last: target, end: a.start.Add(quorum.Validity(a.ttl)), life: c.life}
	if w.broken == ReplyTime {
		h.end = c.instant().Add(quorum.Validity(a.ttl))
	}
	c.last[a.lock] = target
	w.log(c.name, "has lock %d by #%d, token %d to %d, for %v", a.lock, a.nonce, h.first, h.last, h.end.Left(c.instant()))
	w.judge.acquired(h)
	if w.calm && !c.got {
		c.got = true
		w.settled++
	}
	d := between(c.rng, 0, maxTTL/8)
	if !w.calm && chance(c.rng, 15) {
		d = between(c.rng, 0, 4*maxTTL)
	}
	c.after(d, func() { h.finish("releases") })
	c.after(h.ttl/3, h.renew)
}

// valid reports whether the holder may still rely on it.
func (h *hold) valid() bool { return !h.over && h.life == h.c.life && !h.end.Reached(h.c.instant()) }

// finish ends the hold, for whatever reason.
func (h *hold) finish(verb string) {
	if h.over {
		return
	}
	h.over = true
	h.c.w.log(h.c.name, "%s lock %d of #%d", verb, h.lock, h.nonce)
	h.c.w.judge.ended(h)
	h.c.free(h.lock, h.nonce)
	h.c.think(thought)
}

// renew extends the lease, and comes back in time for the next renewal.
func (h *hold) renew() {
	c, w := h.c, h.c.w
	start := c.instant()
	if h.over {
		return
	}
	if h.end.Reached(start) {
		h.finish("loses")
		return
	}
	tally, done := w.params.Tally(h.end), false
	count := func(v quorum.Verdict) {
		if done || h.over || v == quorum.Open {
			return
		}
		done = true
		switch {
		case v == quorum.Won:
			h.extend(start)
			c.after(h.ttl/3, h.renew)
		case tally.Ended(c.instant()):
			h.finish("loses")
		default:
			c.after(resting, h.renew)
		}
	}
	for node := range w.nodes {
		c.call(node, Request{Op: Extend, Name: h.lock, Nonce: h.nonce, TTL: h.ttl, Token: h.last}, func(r Answer) {
			switch now := c.instant(); {
			case r.OK:
				count(tally.Yes(node, now))
			case r.Unadmitted:
				count(tally.Away(node, now))
			default:
				count(tally.No(node, now))
			}
		})
	}
	c.after(max(0, h.end.Left(start)), func() { count(tally.Verdict(c.instant())) })
}

// extend has the hold last from start, which was before the renewal that succeeded.
func (h *hold) extend(start driver.Instant) {
	w := h.c.w
	w.judge.extending(h)
	h.end = start.Add(quorum.Validity(h.ttl))
	if w.broken == ReplyTime {
		h.end = h.c.instant().Add(quorum.Validity(h.ttl))
	}
	w.log(h.c.name, "has renewed #%d, for %v", h.nonce, h.end.Left(h.c.instant()))
}

// crash ends the client's life, and what it held is not given up. Another client takes its place.
func (c *client) crash() {
	c.w.log(c.name, "dies")
	c.life++
	c.until, c.nonce, c.last = 0, 0, make([]uint64, c.w.locks)
	c.w.judge.died(c)
	c.think(thought)
}
