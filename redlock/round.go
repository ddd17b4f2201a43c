package redlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// A round is one try to take a lock. It has its own nonce, sends one command to each node that
// is not down, and perhaps a second one that raises the node's counter. A [quorum.Attempt]
// decides what follows from the answers.
type round struct {
	d     *Driver
	req   *driver.Request
	lock  *lock
	nonce string // ends with a space, so that it is no prefix of another one
	start driver.Instant
	ready chan struct{} // has the capacity 1; receives when the verdict is there

	// old has, by node, the nonces that the round replaces by its own, if it takes a lease over
	// for the same owner: "" for nodes that it leaves alone. Otherwise it is nil.
	old []string

	settled chan struct{} // closed when the round has become a lease, or its cleanup is queued

	mu       sync.Mutex
	quorum   quorum.Attempt
	verdict  quorum.Verdict
	target   uint64
	commands []command // by node
	sent     quorum.Set
	answers  [quorum.MaxNodes]answer // to the first command

	// needAll is set if all answers matter because the owner's own lease has been seen.
	needAll bool

	reported bool
}

// An answer is what a node answered to the first command of a round.
type answer struct {
	kind  answerKind
	value string // the key's value, or the rest of the answer
	left  time.Duration
	err   error
}

// An answerKind is the outcome of a node's answer.
type answerKind uint8

const (
	unanswered answerKind = iota // no answer, or none yet
	granted                      // the key belongs to the round
	held                         // the key belongs to another client
	unadmitted                   // the node is not admitted
	mismatched                   // the node belongs to another cluster
	wrongType                    // the key is not a string
	absent                       // the node has no key that the round takes over
)

// startRound begins to take a lock that is free. If enlist is set, nodes that refuse record the
// owner as a waiter.
func (d *Driver) startRound(req *driver.Request, l *lock, enlist bool) *round {
	r := d.newRound(req, l, d.newNonce())
	code, n := byte('a'), 4
	args := [6]string{r.nonce, rediskit.Millis(req.TTL), strconv.FormatUint(d.tokenHint(l), 10), encodeHolder(req)}
	if tokens := tokenCount(req); enlist || tokens > 1 {
		code, n = 'A', 6
		args[4] = strconv.Itoa(tokens)
		if enlist {
			args[5] = req.ID
		}
	}
	for i := range r.commands {
		r.commands[i].set(code, l, args[:n]...)
	}
	r.send()
	return r
}

// startTakeOver begins to take over a lease for its owner. The argument old has the nonces of its
// keys, by node. The keys get a new nonce, so that nothing that was sent for an earlier round or
// lease can free them, however late it arrives. Only a lease that this driver holds keeps its
// nonce: both handles use it.
func (d *Driver) startTakeOver(ctx context.Context, req *driver.Request, l *lock, old []string) *round {
	nonce := d.newNonce()
	if i := slices.IndexFunc(old, func(o string) bool { return d.holds(ctx, o) }); i >= 0 {
		nonce = old[i]
	}
	r := d.newRound(req, l, nonce)
	r.old, r.quorum = old, d.params.TakeOver(r.start, req.TTL)
	for i := range r.commands {
		r.commands[i].set('g', l, nonce, rediskit.Millis(req.TTL), old[i])
	}
	r.send()
	return r
}

func (d *Driver) newRound(req *driver.Request, l *lock, nonce string) *round {
	r := &round{
		d: d, req: req, lock: l, nonce: nonce, start: driver.Now(),
		ready: make(chan struct{}, 1), settled: make(chan struct{}), commands: make([]command, len(d.nodes)),
	}
	r.quorum = d.params.Attempt(r.start, req.TTL)
	for i := range r.commands {
		cmd := &r.commands[i]
		cmd.node, cmd.receiver, cmd.sendBy = i, r, r.start.Add(req.TTL)
	}
	d.mu.Lock()
	d.pending[nonce] = r
	d.mu.Unlock()
	return r
}

// settle records what became of a round: a lease, or nil if its cleanup is queued.
func (r *round) settle(l *lease) {
	d := r.d
	d.mu.Lock()
	defer d.mu.Unlock()
	close(r.settled)
	if d.pending[r.nonce] == r {
		delete(d.pending, r.nonce)
	}
	if l == nil {
		return
	}
	if len(d.leases) >= d.maxLeases { // remove those that ended without a release
		maps.DeleteFunc(d.leases, func(_ string, l *lease) bool { return !l.isValid() })
		d.maxLeases = max(2*len(d.leases), 100)
	}
	d.leases[r.nonce] = l
}

// holds reports whether this driver has a valid lease with a nonce. If the round with this nonce is
// under way, holds waits for its outcome.
func (d *Driver) holds(ctx context.Context, nonce string) bool {
	d.mu.Lock()
	r := d.pending[nonce]
	d.mu.Unlock()
	if r != nil {
		select {
		case <-r.settled:
		case <-ctx.Done():
			return true // that round may win, so its nonce must not change
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.leases[nonce]
	return l != nil && l.isValid()
}

// forget removes the lease with a nonce from those that this driver has.
func (d *Driver) forget(nonce string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.leases, nonce)
}

// send gives the first commands to the nodes.
func (r *round) send() {
	for i, node := range r.d.nodes {
		if r.old != nil && r.old[i] == "" {
			r.onAnswer(&r.commands[i], "n", nil)
			continue
		}
		if node.send(&r.commands[i]) {
			r.mu.Lock()
			r.sent |= 1 << i
			r.mu.Unlock()
		} else {
			r.onAnswer(&r.commands[i], "", errDown)
		}
	}
}

// errDown is the answer of a node that was not asked because it is down.
const errDown driver.Sentinel = "it is down"

// maxTokens limits the tokens of a lease. Each token puts the counters ahead of the clock
// by one microsecond.
const maxTokens = 1 << 12

// tokenCount returns how many tokens to reserve for a request.
func tokenCount(req *driver.Request) int { return min(max(req.Tokens, 1), maxTokens) }

// onAnswer implements [receiver].
func (r *round) onAnswer(cmd *command, text string, err error) {
	now := driver.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmd.code == 'r' {
		if err == nil && text == "o" {
			r.apply(r.quorum.Raised(cmd.node, now), now)
		} else {
			r.apply(r.quorum.Refused(cmd.node, now), now)
		}
		return
	}
	ans := &r.answers[cmd.node]
	counter := uint64(0)
	if err != nil {
		ans.err = err
	} else {
		counter = ans.parse(text)
	}
	if ans.kind == unadmitted || ans.kind == mismatched {
		r.d.agent.suspect(cmd.node)
	}
	if ans.kind == granted {
		r.apply(r.quorum.Granted(cmd.node, counter, now), now)
		return
	}
	if ans.kind == held && parseValue(ans.value).holder.Owner == r.req.ID {
		r.needAll = true
	}
	r.apply(r.quorum.Refused(cmd.node, now), now)
}

// parse reads the answer to a first command and returns the counter of a grant.
func (ans *answer) parse(text string) (counter uint64) {
	word, rest, _ := strings.Cut(text, " ")
	ans.value = rest
	switch word {
	case "g":
		var err error
		if counter, err = strconv.ParseUint(rest, 10, 64); err == nil && counter <= maxToken {
			ans.kind = granted
		}
	case "h":
		left, value, _ := strings.Cut(rest, " ")
		ans.kind, ans.value, ans.left = held, value, parseMillis(left)
	case "u":
		ans.kind = unadmitted
	case "m":
		ans.kind = mismatched
	case "k":
		ans.kind = wrongType
	case "n":
		ans.kind = absent
	}
	if ans.kind == unanswered {
		ans.err = fmt.Errorf("the script answered %s", quoted(text))
	}
	return counter
}

// maxLeft bounds the remaining time of a key with an expiry.
const maxLeft = 10 * 365 * 24 * time.Hour

// parseMillis returns the remaining time of a key.
func parseMillis(text string) time.Duration {
	ms, err := strconv.ParseFloat(text, 64) // Lua writes 9e+15
	switch {
	case err != nil || ms == -1:
		return driver.NoExpiry
	case ms < 0:
		return 0
	}
	return time.Duration(min(ms, float64(maxLeft.Milliseconds()))) * time.Millisecond
}

// apply carries out a step: it sends the raises and reports the verdict. It is called
// with r.mu held.
func (r *round) apply(step quorum.Step, now driver.Instant) {
	r.verdict, r.target = step.Verdict, step.Target
	var down quorum.Set
	for i := range step.Raise.All() {
		cmd := new(command)
		cmd.node, cmd.receiver, cmd.sendBy = i, r, r.start.Add(r.req.TTL)
		cmd.set('r', r.lock, r.nonce, strconv.FormatUint(step.Target, 10))
		if !r.d.nodes[i].send(cmd) {
			down |= 1 << i
		}
	}
	for i := range down.All() {
		r.apply(r.quorum.Refused(i, now), now)
	}
	if r.verdict == quorum.Open || r.reported || r.verdict == quorum.Failed && r.needAll && r.hasPending() {
		return
	}
	r.reported = true
	r.ready <- struct{}{}
}

// hasPending reports whether first commands are still unanswered. It is called with r.mu held.
func (r *round) hasPending() bool {
	for i := range r.sent.All() {
		if ans := &r.answers[i]; ans.kind == unanswered && ans.err == nil {
			return true
		}
	}
	return false
}

// wait returns the verdict. A node that does not answer within NodeTimeout, or a quarter of the
// TTL if that is shorter, counts as a refusal.
func (r *round) wait(ctx context.Context) quorum.Verdict {
	timeout := min(r.d.conf.timeout, r.req.TTL/4)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for repeated := false; ; {
		select {
		case <-r.ready:
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.verdict
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reported = true
			return quorum.Failed
		case <-timer.C:
			r.dropLateNodes(repeated)
			repeated = true
			timer.Reset(timeout)
		}
	}
}

// dropLateNodes makes late nodes count as refusals: without includeRaising, those that have not
// granted; with it, also those that have not raised their counter.
func (r *round) dropLateNodes(includeRaising bool) {
	r.d.agent.wakeLoop()
	now := driver.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.needAll = false
	r.apply(r.quorum.Expired(now), now)
	for i := range r.d.nodes {
		if includeRaising || !r.quorum.Granters().Has(i) {
			r.apply(r.quorum.Refused(i, now), now)
		}
	}
}

// cleanUp frees the lock on the nodes where the round may have taken it, without waiting. If the
// round has taken it over from another driver, cleanUp undoes that instead, because the owner may
// hold the lease there. A lease that this driver holds stays as it is.
func (r *round) cleanUp() *poll {
	defer r.settle(nil)
	p, end := r.d.newPoll(nil), r.start.Add(2*r.req.TTL)
	nodes := r.nodesToFree()
	if slices.Contains(r.old, r.nonce) {
		nodes = 0
	}
	for i := range nodes.All() {
		p.commands[i].sendBy = end
		if r.old == nil || strings.HasPrefix(r.old[i], r.d.nonceID) {
			p.sendCleanup(i, 'f', r.lock, r.nonce, "0")
		} else {
			p.sendCleanup(i, 'u', r.lock, r.nonce, r.old[i])
		}
	}
	p.close()
	return p
}

// nodesToFree returns the nodes on which the key may belong to the round, now or later. It
// cancels commands that were not sent yet, and leaves out the nodes of those.
func (r *round) nodesToFree() (nodes quorum.Set) {
	r.mu.Lock()
	sent, answers := r.sent, r.answers
	r.mu.Unlock()
	for i := range sent.All() {
		k := answers[i].kind
		if (k == granted || k == unanswered) && !r.d.nodes[i].cancel(&r.commands[i]) {
			nodes |= 1 << i
		}
	}
	return nodes
}
