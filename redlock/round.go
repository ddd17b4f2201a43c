package redlock

import (
	"context"
	"fmt"
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

	mu       sync.Mutex
	quorum   quorum.Attempt
	verdict  quorum.Verdict
	target   uint64
	commands []command // by node
	sent     quorum.Set
	answers  [quorum.MaxNodes]answer // to the first command

	reported bool
}

// An answer is what a node answered to the first command of a round.
type answer struct {
	kind  answerKind
	value string // the key's value
	left  time.Duration
	err   error
}

// An answerKind is the outcome of a node's answer.
type answerKind uint8

const (
	unanswered answerKind = iota // no answer, or none yet
	granted                      // the key belongs to the round
	held                         // the key belongs to another client
	closed                       // the node is not admitted, or belongs to another cluster
	wrongType                    // the key is not a string
)

// startRound begins to take a lock that is free. If enlist is set, nodes that refuse record the
// attempt as a waiter.
func (d *Driver) startRound(req *driver.Request, l *lock, enlist bool) *round {
	r := &round{
		d: d, req: req, lock: l, nonce: d.newNonce(), start: driver.Now(),
		ready: make(chan struct{}, 1), commands: make([]command, len(d.nodes)),
	}
	r.quorum = d.params.Attempt(r.start, req.TTL)
	waiter := ""
	if enlist {
		waiter = req.ID
	}
	args := [...]string{r.nonce, rediskit.Millis(req.TTL), strconv.FormatUint(d.tokenHint(l), 10), encodeHolder(req, 0),
		strconv.Itoa(req.TokenBlock()), waiter}
	for i := range r.commands {
		cmd := &r.commands[i]
		cmd.node, cmd.receiver, cmd.sendBy = i, r, r.start.Add(req.TTL)
		cmd.set(codeTake, l, args[:]...)
	}
	r.send()
	return r
}

// send gives the first commands to the nodes.
func (r *round) send() {
	for i, node := range r.d.nodes {
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

// onAnswer implements [receiver].
func (r *round) onAnswer(cmd *command, text string, err error) {
	now := driver.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmd.code == codeRaise {
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
	if ans.kind == closed {
		r.d.nodes[cmd.node].suspect()
	}
	if ans.kind == granted {
		r.apply(r.quorum.Granted(cmd.node, counter, now), now)
		return
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
	case "u", "m":
		ans.kind, ans.err = closed, refusal(text)
	case "k":
		ans.kind, ans.err = wrongType, fmt.Errorf("%w: its key is a %s", driver.ErrKind, printable(rest))
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
		cmd.set(codeRaise, r.lock, r.nonce, strconv.FormatUint(step.Target, 10))
		if !r.d.nodes[i].send(cmd) {
			down |= 1 << i
		}
	}
	for i := range down.All() {
		r.apply(r.quorum.Refused(i, now), now)
	}
	if r.verdict == quorum.Open || r.reported {
		return
	}
	r.reported = true
	r.ready <- struct{}{}
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
	now := driver.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.d.nodes {
		if includeRaising || r.answers[i].kind != granted {
			r.apply(r.quorum.Refused(i, now), now)
		}
	}
}

// cleanUp frees the lock on the nodes where the round may have taken it, without waiting.
func (r *round) cleanUp() *poll {
	return r.d.cleanUp(r.nodesToFree(), r.start.Add(2*r.req.TTL), codeFree, r.lock, r.nonce, "0")
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
