package redlock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// A lease is the driver's side of one grant.
type lease struct {
	d         *Driver
	req       driver.Request // its Holder is guarded by mu
	lock      lock
	round     *round // the round that won it
	lastToken string // the last token of its block
	grant     driver.Grant
	granted   driver.Instant // when a majority had granted it; MinHold counts from then

	// topic is the subscription to messages about the lease's loss; nil without one. It and the
	// next two fields are guarded by listener.mu.
	topic *topic

	// checking is set while the lease is checked after a hint, and hinted if another hint
	// has come since.
	checking, hinted bool

	releaseMu sync.Mutex
	released  bool // guarded by releaseMu

	mu  sync.Mutex
	set int64 // see holder

	// lastSent is when the lease was last requested or extended, successfully or not.
	lastSent driver.Instant

	validUntil driver.Instant // the end of its validity
	extendedOn quorum.Set     // nodes to which an extension may have brought the lease
	ended      bool           // released or lost
}

func newLease(d *Driver, req driver.Request, l lock, r *round, lastToken uint64) *lease {
	tokens := req.TokenBlock()
	le := &lease{
		d: d, req: req, lock: l, round: r, lastToken: strconv.FormatUint(lastToken, 10),
		grant:   driver.Grant{Token: lastToken - uint64(tokens) + 1, Tokens: tokens, Start: r.start},
		granted: driver.Now(), lastSent: r.start, validUntil: r.start.Add(quorum.Validity(req.TTL)),
	}
	d.listener.addLease(le)
	return le
}

// isValid reports whether the holder may still rely on the lease.
func (l *lease) isValid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ended && !l.validUntil.Reached(driver.Now())
}

// ID returns the id of the request that the lease was granted to.
func (l *lease) ID() string { return l.req.ID }

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease]. It returns when a majority has freed the lock. The other
// nodes follow, also those that hang now.
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	if l.released {
		return nil
	}
	l.mu.Lock()
	end, valid := l.lastSent.Add(2*l.req.TTL), !l.validUntil.Reached(driver.Now())
	nodes := l.extendedOn
	l.ended = true
	l.mu.Unlock()
	l.d.listener.removeLease(l)
	keep := rediskit.Millis(max(0, l.req.MinHold-driver.Now().SubMono(l.granted)))
	nodes |= l.round.nodesToFree()
	all, err := l.d.tell(ctx, nodes, end, codeFree, &l.lock, l.round.nonce, keep)
	switch {
	case errors.Is(err, driver.ErrLost), err != nil && !all:
		return err
	case err != nil && !valid: // nodes that are not admitted do not have the lease, and may have forgotten it
		return driver.ErrLost
	}
	l.released = true
	return nil
}

// SetHolder implements [driver.Lease]. It returns when a majority shows the holder. The other nodes
// follow, also those that hang now.
func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	if err := l.d.life.Ready(ctx); err != nil {
		return err
	}
	if !l.isValid() {
		return driver.ErrLost
	}
	l.mu.Lock()
	l.req.Holder, l.set = h, time.Now().UnixMicro()
	rest, end := encodeHolder(&l.req, l.set), l.lastSent.Add(2*l.req.TTL)
	l.mu.Unlock()
	_, err := l.d.tell(ctx, l.d.allNodes(), end, codeSetHolder, &l.lock, l.round.nonce, rest)
	return err
}

// tell sends a command about a lease to some nodes, and returns when a majority has confirmed it.
// The error is [driver.ErrLost] if no majority had the lease. Another error says why neither is
// certain; then all reports that all nodes have answered.
func (d *Driver) tell(
	ctx context.Context, nodes quorum.Set, sendBy driver.Instant, code byte, l *lock, args ...string,
) (all bool, err error) {
	now, end := driver.Instant{}, driver.Instant{} // no answer comes too late
	tally := d.params.Tally()
	p := d.newPoll(func(node int, r reply) bool {
		countVote(&tally, node, r)
		return tally.Won(now, end) || tally.Ended(now, end)
	})
	for i := range d.nodes {
		if nodes.Has(i) {
			p.commands[i].sendBy = sendBy
			p.sendEvenIfDown(i, code, l, args...)
			continue
		}
		p.mu.Lock()
		tally.No(i)
		p.replies[i] = reply{text: "n"} // as the round has heard
		p.mu.Unlock()
	}
	p.close()
	select {
	case <-p.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-d.sendCtx.Done(): // hung nodes will not be told any more
		err = driver.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case tally.Won(now, end):
		return true, nil
	case tally.Ended(now, end):
		return true, driver.ErrLost
	case err == nil, errors.Is(err, errOverdue):
		err = d.noMajority(reasonsOf(p.replies))
	}
	return !slices.ContainsFunc(p.replies, func(r reply) bool { return r.err != nil }), err
}

// countVote counts an answer as yes, no, or neither: a node that is not admitted may have forgotten
// what others remember.
func countVote(t *quorum.Tally, node int, r reply) {
	switch {
	case r.err == nil && r.text == "o", r.err == nil && r.text == "n" && r.maybeExecuted:
		// If the command was sent before, that may have done it already.
		t.Yes(node)
	case r.err == nil && r.text == "n":
		t.No(node)
	}
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	extensions := make([]*extension, len(due))
	var foreign sync.WaitGroup
	for i := range due {
		switch l := due[i].(type) {
		case *foreignLease:
			foreign.Go(func() { answers[i] = l.renew(ctx) })
		default:
			answers[i].Err = driver.ErrLost // if it can't be extended
			extensions[i] = l.(*lease).extend(false)
		}
	}
	timer := time.NewTimer(d.conf.timeout)
	defer timer.Stop()
	for i, e := range extensions {
		if e != nil {
			answers[i] = e.wait(ctx, timer)
		}
	}
	foreign.Wait()
	return answers
}

// An extension is one attempt to renew a lease, or only the question whether the nodes have it.
type extension struct {
	lease     *lease
	poll      *poll
	sent      driver.Instant
	asksOnly  bool
	tally     quorum.Tally // guarded by poll.mu
	foundLost bool         // it discovered that the lease has ended
}

// extend asks all nodes to extend the lease. It returns nil if the lease has ended. With asksOnly
// it extends nothing, and waits for all answers, even if a majority has the lease: the core may
// have given up a hold, and left its lease to lapse after a LockDelay.
func (l *lease) extend(asksOnly bool) *extension {
	l.mu.Lock()
	defer l.mu.Unlock() // held until all commands are queued: Release's must be the last
	e := &extension{lease: l, sent: driver.Now(), asksOnly: asksOnly, tally: l.d.params.Tally()}
	if l.ended = l.ended || l.validUntil.Reached(e.sent); l.ended {
		return nil
	}
	ttl, token, rest := "0", "0", "}"
	if !asksOnly {
		l.lastSent, l.extendedOn = e.sent, l.d.allNodes()
		ttl, token, rest = rediskit.Millis(l.req.TTL), l.lastToken, encodeHolder(&l.req, l.set)
	}
	e.poll = l.d.newPoll(func(node int, r reply) bool {
		if r.text != "" && r.text[0] == 'u' {
			l.d.nodes[node].suspect()
		}
		countVote(&e.tally, node, r)
		now, end := driver.Instant{}, driver.Instant{} // wait looks at the time
		return e.tally.Won(now, end) && !asksOnly || e.tally.Ended(now, end)
	})
	for i := range l.d.nodes {
		e.poll.commands[i].sendBy = l.validUntil
		e.poll.send(i, codeExtend, &l.lock, l.round.nonce, ttl, token, rest)
	}
	e.poll.close()
	return e
}

// anyRefused reports whether a node has said that it does not have the lease.
func (e *extension) anyRefused() bool {
	e.poll.mu.Lock()
	defer e.poll.mu.Unlock()
	return slices.ContainsFunc(e.poll.replies, func(r reply) bool { return r.text == "n" })
}

// wait returns the result. Nodes that have not answered when the timer fires count neither as yes
// nor as no.
func (e *extension) wait(ctx context.Context, timer *time.Timer) driver.Renewal {
	select {
	case <-e.poll.done:
	case <-timer.C:
		timer.Reset(0) // for the other extensions
	case <-ctx.Done():
	}
	l := e.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := driver.Now()
	e.poll.mu.Lock()
	won, ended := e.tally.Won(now, l.validUntil), e.tally.Ended(now, l.validUntil)
	errs := reasonsOf(e.poll.replies)
	e.poll.mu.Unlock()
	if !l.lastSent.Reached(e.sent) { // a later extension may have taken the lock again where it was gone
		ended = l.validUntil.Reached(now)
	}
	switch {
	case l.ended || ended:
		if e.foundLost = !l.ended; e.foundLost {
			l.ended = true
			// The other nodes may still have it, or have taken it again for the extension, and would have
			// no vote for anybody else until its TTL ends.
			l.d.cleanUp(l.d.allNodes(), l.lastSent.Add(2*l.req.TTL), codeFree, &l.lock, l.round.nonce, "0")
		}
		return driver.Renewal{Err: driver.ErrLost}
	case won:
		if !e.asksOnly {
			l.validUntil = e.sent.Add(quorum.Validity(l.req.TTL))
		}
		return driver.Renewal{Start: e.sent}
	case ctx.Err() != nil:
		return driver.Renewal{Err: context.Cause(ctx)}
	}
	return driver.Renewal{Err: l.d.noMajority(errs)}
}
