package redlock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// An attempt is one try to take a lock: a nonce of its own, one order to each node that is not down, perhaps a second one to raise its
// counter, and what [quorum.Attempt] makes of the answers.
type attempt struct {
	d     *Driver
	req   *driver.Request
	lock  *lock
	nonce string // with a space at its end, by which no other one begins with it
	again bool   // the nonce is that of an earlier attempt
	start driver.Instant
	ready chan struct{} // of one: the verdict is there

	mu       sync.Mutex
	quorum   quorum.Attempt
	verdict  quorum.Verdict
	target   uint64
	orders   []order // by node
	asked    quorum.Set
	replies  [quorum.MaxNodes]said // to the first order
	thorough bool                  // all answers matter: a lease of the same owner has been seen
	told     bool
}

// said is what a node said to an attempt.
type said struct {
	kind  kind
	value string // the key's, or what the node said instead
	left  time.Duration
	err   error
}

// A kind is what an answer comes to.
type kind uint8

const (
	silent     kind = iota // none, or not yet
	granted                // the key is the attempt's
	held                   // somebody else's
	unadmitted             // the node is kept out
	mismatched             // it belongs to another cluster
	alien                  // the key is no string
	absent                 // the key is not that of the earlier attempt
)

// attempt begins to take a lock. As is the nonce of an earlier attempt of the same owner, or empty. Enlist has those nodes that
// refuse note that somebody waits.
func (d *Driver) attempt(req *driver.Request, l *lock, as string, enlist bool) *attempt {
	a := &attempt{d: d, req: req, lock: l, nonce: as, again: as != "", ready: make(chan struct{}, 1), orders: make([]order, len(d.nodes))}
	ttl := millis(req.TTL)
	code, args := byte('g'), [6]string{as, ttl}
	n := 2
	if !a.again {
		a.nonce = d.nonce()
		code, n = 'a', 4
		args = [6]string{a.nonce, ttl, strconv.FormatUint(d.hint(l), 10), describeHolder(req)}
		if tokens := blockOf(req); enlist || tokens > 1 {
			code, n = 'A', 6
			args[4] = strconv.Itoa(tokens)
			if enlist {
				args[5] = req.Owner
			}
		}
	}
	a.start = driver.Now()
	a.quorum = d.params.Attempt(a.start, req.TTL)
	for i := range a.orders {
		o := &a.orders[i]
		o.node, o.to, o.end = i, a, a.start.Add(req.TTL)
		o.set(code, l, args[:n]...)
	}
	for i, node := range d.nodes {
		if node.send(&a.orders[i]) {
			a.mu.Lock()
			a.asked |= 1 << i
			a.mu.Unlock()
		} else {
			a.answered(&a.orders[i], "", errDown)
		}
	}
	return a
}

// errDown is the answer of a node that was not asked.
const errDown driver.Sentinel = "it is down"

// maxBlock bounds the tokens of a lease: each is a microsecond by which the counters run ahead of the clock.
const maxBlock = 1 << 12

// blockOf is how many tokens to reserve.
func blockOf(req *driver.Request) int { return min(max(req.Tokens, 1), maxBlock) }

// answered implements [receiver].
func (a *attempt) answered(o *order, text string, err error) {
	now := driver.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.code == 'r' {
		if err == nil && text == "o" {
			a.follow(a.quorum.Raised(o.node, now), now)
		} else {
			a.follow(a.quorum.Refused(o.node, now), now)
		}
		return
	}
	r := &a.replies[o.node]
	counter := uint64(0)
	if err != nil {
		r.err = err
	} else {
		counter = r.read(text)
	}
	if r.kind == unadmitted || r.kind == mismatched {
		a.d.agent.suspect(o.node)
	}
	if r.kind == granted {
		a.follow(a.quorum.Granted(o.node, counter, now), now)
		return
	}
	if r.kind == held && parseValue(r.value).holder.Owner == a.req.Owner {
		a.thorough = true
	}
	a.follow(a.quorum.Refused(o.node, now), now)
}

// read makes sense of the answer to a first order, and returns the counter of a grant.
func (r *said) read(text string) (counter uint64) {
	word, rest, _ := strings.Cut(text, " ")
	r.value = rest
	switch word {
	case "g":
		var err error
		if counter, err = strconv.ParseUint(rest, 10, 64); err == nil && counter <= mostToken {
			r.kind = granted
		}
	case "h":
		left, value, _ := strings.Cut(rest, " ")
		r.kind, r.value, r.left = held, value, parseMillis(left)
	case "u":
		r.kind = unadmitted
	case "m":
		r.kind = mismatched
	case "k":
		r.kind = alien
	case "n":
		r.kind = absent
	}
	if r.kind == silent {
		r.err = fmt.Errorf("the script answered %s", quoted(text))
	}
	return counter
}

// endless stands for the time that is left of a key without an end.
const endless = 10 * 365 * 24 * time.Hour

func parseMillis(text string) time.Duration {
	ms, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || ms == -1:
		return endless
	case ms < 0:
		return 0
	}
	return time.Duration(min(ms, endless.Milliseconds())) * time.Millisecond
}

// follow does what a step says. It is called with a.mu held.
func (a *attempt) follow(step quorum.Step, now driver.Instant) {
	a.verdict, a.target = step.Verdict, step.Target
	var down quorum.Set
	for i := range step.Raise.All() {
		o := new(order)
		o.node, o.to, o.end = i, a, a.start.Add(a.req.TTL)
		o.set('r', a.lock, a.nonce, strconv.FormatUint(step.Target, 10))
		if !a.d.nodes[i].send(o) {
			down |= 1 << i
		}
	}
	for i := range down.All() {
		a.follow(a.quorum.Refused(i, now), now)
	}
	if a.verdict == quorum.Open || a.told || a.verdict == quorum.Failed && a.thorough && a.pending() {
		return
	}
	a.told = true
	a.ready <- struct{}{}
}

// pending reports whether answers to first orders are to come. It is called with a.mu held.
func (a *attempt) pending() bool {
	for i := range a.asked.All() {
		if r := &a.replies[i]; r.kind == silent && r.err == nil {
			return true
		}
	}
	return false
}

// wait returns the verdict. Nodes that are late have refused.
func (a *attempt) wait(ctx context.Context) quorum.Verdict {
	patience := min(a.d.conf.timeout, a.req.TTL/4)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for again := false; ; {
		select {
		case <-a.ready:
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.verdict
		case <-ctx.Done():
			a.mu.Lock()
			defer a.mu.Unlock()
			a.told = true
			return quorum.Failed
		case <-timer.C:
			a.hurry(again)
			again = true
			timer.Reset(patience)
		}
	}
}

// hurry gives up nodes that are late: at first those that have not said anything, and the next time those that have not raised their
// counter either.
func (a *attempt) hurry(again bool) {
	a.d.agent.notice()
	now := driver.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.thorough = false
	a.follow(a.quorum.Expired(now), now)
	for i := range a.d.nodes {
		if again || !a.quorum.Granters().Has(i) {
			a.follow(a.quorum.Refused(i, now), now)
		}
	}
}

// end makes the nodes forget the attempt.
func (a *attempt) end() *poll {
	return a.d.tidyUp(a.doubtful(), a.start.Add(2*a.req.TTL), 'f', a.lock, a.nonce, "0")
}

// doubtful returns the nodes on which the key may be, or come to be, the attempt's.
func (a *attempt) doubtful() (nodes quorum.Set) {
	a.mu.Lock()
	asked, replies := a.asked, a.replies
	a.mu.Unlock()
	for i := range asked.All() {
		if k := replies[i].kind; (k == granted || k == silent) && !a.d.nodes[i].withdraw(&a.orders[i]) {
			nodes |= 1 << i
		}
	}
	return nodes
}
