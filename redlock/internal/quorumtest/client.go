package quorumtest

import (
	"cmp"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// A client is a process that takes a lock, holds it and releases it, over and over. It leaves
// all conclusions from the nodes' answers to package quorum.
type client struct {
	actor
	nonce      uint64   // the nonce of its first attempt, for the break SameNonce
	lastTokens []uint64 // the last token it saw, by lock
	recovered  bool     // it has had a lock since the faults ended
}

// These are the times of clients.
const (
	maxThinkTime    = 60 * time.Millisecond  // longest time between a release and the next attempt
	maxBackoff      = 100 * time.Millisecond // longest time between attempts
	renewRetryPause = maxTTL / 8             // between renewals that failed
)

// An attempt is one try of a client to take a lock.
type attempt struct {
	quorum.Attempt
	c      *client
	lock   int
	nonce  uint64
	ttl    time.Duration
	tokens uint64
	start  driver.Instant

	// floor is the greatest token of the acquisitions that were complete when the
	// attempt began.
	floor uint64

	verdict quorum.Verdict
}

// think waits for a random time up to most, and then tries.
func (c *client) think(most time.Duration) {
	if !c.recovered {
		c.after(between(c.rng, 0, most), func() { c.try(c.rng.IntN(c.w.locks), 0) })
	}
}

// try requests a lock. The argument failed is the number of attempts that have failed before.
func (c *client) try(lock, failed int) {
	w := c.w
	w.nonces++
	a := &attempt{c: c, lock: lock, nonce: w.nonces, ttl: between(c.rng, maxTTL/4, maxTTL), tokens: 1 + c.rng.Uint64N(3),
		start: c.instant()}
	if w.broken == SameNonce {
		c.nonce = cmp.Or(c.nonce, a.nonce)
		a.nonce = c.nonce
	}
	ask := Request{Op: Ask, Name: lock, Nonce: a.nonce, TTL: a.ttl, Hint: c.hint(lock), Tokens: a.tokens}
	w.log(c.name, "begins #%d for lock %d", a.nonce, lock)
	a.Attempt, a.floor = w.params.Attempt(a.start, a.ttl), w.judge.greatest[lock]
	for node := range w.nodes {
		c.request(node, ask, func(r Answer) {
			if r.OK {
				a.apply(a.Granted(node, r.Counter, c.instant()), failed)
			} else {
				a.apply(a.Refused(node, c.instant()), failed)
			}
		})
	}
	c.after(a.ttl, func() { a.apply(a.Refused(0, c.instant()), failed) }) // any answer ends it now
}

// request sends a request to a node. If the node does not answer soon, it counts as unadmitted
// until it does.
func (c *client) request(node int, r Request, answer func(Answer)) {
	answered := false
	c.send(node, r, func(a Answer) {
		answered = true
		answer(a)
	})
	c.after(c.w.nodeTimeout, func() {
		if !answered {
			answer(Answer{Unadmitted: true})
		}
	})
}

// hint returns the least token that the client asks for.
func (c *client) hint(lock int) uint64 {
	next := c.lastTokens[lock] + 1
	switch {
	case c.w.cell.hints == clockHints:
		return max(c.micros(), next)
	case c.w.cell.hints == randomHints && chance(c.rng, 20):
		return c.lastTokens[lock] + c.rng.Uint64N(4)
	case c.w.cell.hints == randomHints && chance(c.rng, 2):
		return ^uint64(0)
	}
	return next
}

// apply carries out a step.
func (a *attempt) apply(s quorum.Step, failed int) {
	c, w := a.c, a.c.w
	if a.verdict != quorum.Open {
		if s.Verdict != a.verdict || s.Raise != 0 {
			w.judge.reportf("%s: attempt #%d was %v, and is %+v", c.name, a.nonce, a.verdict, s)
		}
		return
	}
	for node := range s.Raise.All() {
		c.request(node, Request{Op: Raise, Name: a.lock, Nonce: a.nonce, Token: s.Target}, func(r Answer) {
			if r.OK {
				a.apply(a.Raised(node, c.instant()), failed)
			} else {
				a.apply(a.Refused(node, c.instant()), failed)
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
			c.after(between(c.rng, 0, maxBackoff), func() { c.try(a.lock, failed+1) })
		} else {
			c.think(maxThinkTime)
		}
	}
}

// free sends all nodes the request to free the lock, and ignores the answers.
func (c *client) free(lock int, nonce uint64) {
	var keep time.Duration
	if chance(c.rng, 5) {
		keep = between(c.rng, 0, maxTTL/10)
	}
	for node := range c.w.nodes {
		c.send(node, Request{Op: Free, Name: lock, Nonce: nonce, TTL: keep}, func(Answer) {})
	}
}

// A hold is what a client has after it won an attempt.
type hold struct {
	*attempt
	first, last uint64         // tokens
	end         driver.Instant // of the validity, by the client's clock
	life        uint64         // the client's life in which it began
	ended       bool
}

func (a *attempt) won(target uint64) {
	c, w := a.c, a.c.w
	h := &hold{attempt: a, first: target - a.tokens + 1, last: target, end: a.start.Add(quorum.Validity(a.ttl)),
		life: c.life}
	if w.broken == ReplyTime {
		h.end = c.instant().Add(quorum.Validity(a.ttl))
	}
	c.lastTokens[a.lock] = target
	w.log(c.name, "has lock %d by #%d, token %d to %d, for %v", a.lock, a.nonce, h.first, h.last, h.end.Left(c.instant()))
	w.judge.checkAcquired(h)
	if w.faultsOver && !c.recovered {
		c.recovered = true
		w.recovered++
	}
	d := between(c.rng, 0, maxTTL/8)
	if !w.faultsOver && chance(c.rng, 15) {
		d = between(c.rng, 0, 4*maxTTL)
	}
	c.after(d, func() { h.finish("releases") })
	c.after(h.ttl/3, h.renew)
}

// valid reports whether the holder may still rely on the hold.
func (h *hold) valid() bool { return !h.ended && h.life == h.c.life && !h.end.Reached(h.c.instant()) }

// finish ends the hold, for whatever reason.
func (h *hold) finish(verb string) {
	if h.ended {
		return
	}
	h.ended = true
	h.c.w.log(h.c.name, "%s lock %d of #%d", verb, h.lock, h.nonce)
	h.c.w.judge.removeHold(h)
	h.c.free(h.lock, h.nonce)
	h.c.think(maxThinkTime)
}

// renew extends the lease, and schedules the next renewal.
func (h *hold) renew() {
	c, w := h.c, h.c.w
	start := c.instant()
	if h.ended {
		return
	}
	if h.end.Reached(start) {
		h.finish("loses")
		return
	}
	tally, done := w.params.Tally(), false
	lacking := make(map[int]bool) // the nodes that have not done it, or not in time
	count := func() {
		if done || h.ended {
			return
		}
		done = true
		switch now := c.instant(); {
		case tally.Won(now, h.end):
			h.extend(start)
			c.after(h.ttl/3, h.renew)
		case tally.Ended(now, h.end):
			h.finish("loses")
		case len(lacking) > w.params.Nodes-w.params.Quorum():
			c.after(renewRetryPause, h.renew)
		default:
			done = false
		}
	}
	for node := range w.nodes {
		c.request(node, Request{Op: Extend, Name: h.lock, Nonce: h.nonce, TTL: h.ttl, Token: h.last}, func(r Answer) {
			lacking[node] = true
			switch {
			case r.OK:
				tally.Yes(node)
				delete(lacking, node)
			case !r.Unadmitted:
				tally.No(node)
			}
			count()
		})
	}
	c.after(max(0, h.end.Left(start)), count)
}

// extend makes the hold last from start, which was before the successful renewal.
func (h *hold) extend(start driver.Instant) {
	w := h.c.w
	w.judge.checkRenewal(h)
	h.end = start.Add(quorum.Validity(h.ttl))
	if w.broken == ReplyTime {
		h.end = h.c.instant().Add(quorum.Validity(h.ttl))
	}
	w.log(h.c.name, "has renewed #%d, for %v", h.nonce, h.end.Left(h.c.instant()))
}

// crash ends the client's life without releasing what it holds. Another client takes its place.
func (c *client) crash() {
	c.w.log(c.name, "dies")
	c.life++
	c.pausedUntil, c.nonce, c.lastTokens = 0, 0, make([]uint64, c.w.locks)
	c.w.judge.removeClient(c)
	c.think(maxThinkTime)
}
