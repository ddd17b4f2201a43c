package redlock

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// A lease is one grant.
type lease struct {
	d       *Driver
	req     driver.Request
	lock    lock
	attempt *attempt // that won it
	token   string   // the last one
	grant   driver.Grant

	topic             *topic // on which its loss is heard of, or nil; guarded by listener.mu, as is what follows
	checking, doubted bool   // it is looked at after a hint, and there was another one since

	releasing sync.Mutex
	released  bool // guarded by releasing

	mu     sync.Mutex
	asked  driver.Instant // when it was asked for or extended last, successfully or not
	until  driver.Instant // the end of its validity
	spread quorum.Set     // nodes on which it may have come to be by an extension
	over   bool           // released or lost
}

func newLease(d *Driver, req driver.Request, l lock, a *attempt, last uint64) *lease {
	spread := quorum.Set(0)
	if a.again { // what else it is on, its earlier attempt knows
		spread = 1<<len(d.nodes) - 1
	}
	block := blockOf(&req)
	le := &lease{
		spread: spread, d: d, req: req, lock: l, attempt: a, token: strconv.FormatUint(last, 10),
		grant: driver.Grant{Token: last - uint64(block) + 1, Tokens: block, Start: a.start},
		asked: a.start, until: a.start.Add(quorum.Validity(req.TTL)),
	}
	d.ears.attach(le)
	return le
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease]. It returns when a majority has freed the lock; the other nodes follow, also those that hang now.
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.releasing.Lock()
	defer l.releasing.Unlock()
	if l.released {
		return nil
	}
	if l.d.life.Err() != nil {
		return driver.ErrClosed
	}
	l.mu.Lock()
	end, valid := l.asked.Add(2*l.req.TTL), !l.until.Reached(driver.Now())
	nodes := l.spread
	l.over = true
	l.mu.Unlock()
	l.d.ears.detach(l)
	keep := "0"
	if left := l.grant.Start.Add(l.req.MinHold).Left(driver.Now()); left > 0 {
		keep = millis(left)
	}
	nodes |= l.attempt.doubtful()
	tally, ended, err := l.d.free(ctx, 'f', &l.lock, l.attempt.nonce, keep, nodes, end)
	switch {
	case tally == quorum.Won:
	case ended:
		return driver.ErrLost
	case err != nil:
		return err
	case !valid:
		return driver.ErrLost // on some nodes perhaps, but not on a majority
	}
	l.released = true
	return nil
}

// free frees a lock on some nodes, until a majority has said that it has. Ended reports that no majority had it. If neither is certain and
// some have not answered, the error says why.
func (d *Driver) free(
	ctx context.Context, code byte, l *lock, nonce, keep string, nodes quorum.Set, end driver.Instant,
) (verdict quorum.Verdict, ended bool, err error) {
	tally := d.params.Tally(driver.Instant{})
	p := d.newPoll(func(node int, r reply) bool {
		now := driver.Now()
		return count(&tally, node, r, now) == quorum.Won || tally.Ended(now)
	})
	for i := range d.nodes {
		if !nodes.Has(i) {
			p.mu.Lock()
			tally.No(i, driver.Now())
			p.mu.Unlock()
			continue
		}
		p.orders[i].end = end
		p.insist(i, code, l, nonce, keep)
	}
	p.close()
	select {
	case <-p.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-d.wires.Done(): // nodes that hang will not be told any more
		err = driver.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := driver.Now()
	verdict, ended = tally.Verdict(now), tally.Ended(now)
	if verdict == quorum.Won || ended {
		return verdict, ended, nil // mostly; what the other nodes do is of no interest then
	}
	if errs := errorsOf(p.replies); err == nil && slices.ContainsFunc(errs, func(e error) bool { return e != nil }) {
		err = d.silent(reasonsOf(p.replies))
	}
	return verdict, ended, err
}

// count takes an answer that is yes, no, or neither.
func count(t *quorum.Tally, node int, r reply, now driver.Instant) quorum.Verdict {
	switch {
	case r.err == nil && r.text == "o", r.err == nil && r.text == "n" && r.doubt: // an earlier try did it, or nobody can tell
		return t.Yes(node, now)
	case r.err == nil && r.text == "n":
		return t.No(node, now)
	}
	return t.Away(node, now) // also one that is not admitted: what it has forgotten, others may remember
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	polls := make([]*extension, len(due))
	for i := range due {
		polls[i] = due[i].(*lease).extend(false)
	}
	timer := time.NewTimer(d.conf.timeout)
	defer timer.Stop()
	for i, e := range polls {
		if e == nil {
			answers[i].Err = driver.ErrLost
			continue
		}
		answers[i] = e.wait(ctx, timer)
	}
	return answers
}

// An extension is the renewal of one lease.
type extension struct {
	lease *lease
	poll  *poll
	sent  driver.Instant
	tally quorum.Tally // guarded by poll.mu
	found bool         // it found out that the lease has ended, which was not known before
}

// extend asks all nodes to extend the lease, or returns nil if it is over. A thorough extension waits for all answers, also if a majority
// has extended the lease.
func (l *lease) extend(thorough bool) *extension {
	l.mu.Lock()
	defer l.mu.Unlock() // until all orders are given: none may follow what Release orders
	e := &extension{lease: l, sent: driver.Now(), tally: l.d.params.Tally(l.until)}
	if l.over = l.over || l.until.Reached(e.sent); l.over {
		return nil
	}
	l.asked = e.sent
	l.spread = 1<<len(l.d.nodes) - 1
	e.poll = l.d.newPoll(func(node int, r reply) bool {
		if r.text != "" && r.text[0] == 'u' {
			l.d.agent.suspect(node)
		}
		now := driver.Now()
		return count(&e.tally, node, r, now) == quorum.Won && !thorough || e.tally.Ended(now)
	})
	ttl, rest := millis(l.req.TTL), describeHolder(&l.req)
	for i := range l.d.nodes {
		e.poll.orders[i].end = l.until
		e.poll.ask(i, 'e', &l.lock, l.attempt.nonce, ttl, l.token, rest)
	}
	e.poll.close()
	return e
}

// leave has all nodes free a lease that a majority has ended. The others may have it still, or have
// taken it again for this extension. Nobody else would get their vote until its TTL is over. It is
// called with l.mu held.
func (l *lease) leave() {
	all := quorum.Set(1<<len(l.d.nodes) - 1)
	l.d.tidyUp(all, l.asked.Add(2*l.req.TTL), 'f', &l.lock, l.attempt.nonce, "0")
}

// refused reports whether a node has said that it does not have the lease.
func (e *extension) refused() bool {
	e.poll.mu.Lock()
	defer e.poll.mu.Unlock()
	return slices.ContainsFunc(e.poll.replies, func(r reply) bool { return r.text == "n" })
}

// wait returns the answer. Nodes that have not answered when the timer fires are away.
func (e *extension) wait(ctx context.Context, timer *time.Timer) driver.Renewal {
	select {
	case <-e.poll.done:
	case <-timer.C:
		timer.Reset(0) // for the others
	case <-ctx.Done():
	}
	l, now := e.lease, driver.Now()
	e.poll.mu.Lock()
	verdict, ended, errs := e.tally.Verdict(now), e.tally.Ended(now), reasonsOf(e.poll.replies)
	e.poll.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over || ended:
		if e.found = !l.over; e.found {
			l.over = true
			l.leave()
		}
		return driver.Renewal{Err: driver.ErrLost}
	case verdict == quorum.Won:
		l.until = e.sent.Add(quorum.Validity(l.req.TTL))
		return driver.Renewal{Start: e.sent}
	case ctx.Err() != nil:
		return driver.Renewal{Err: context.Cause(ctx)}
	}
	return driver.Renewal{Err: l.d.silent(errs)}
}
