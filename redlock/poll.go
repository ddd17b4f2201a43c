package redlock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock/internal/quorum"
)

// A poll is one request to several nodes, with their answers.
type poll struct {
	d        *Driver
	commands []command // by node
	onReply  func(node int, r reply) (enough bool)
	done     chan struct{} // closed when enough is known, or all have answered

	mu       sync.Mutex
	replies  []reply // by node
	pending  int     // answers to come
	finished bool
}

// A reply is the outcome of a command.
type reply struct {
	text          string
	err           error // errDown without a command, and errOverdue until the node answers it
	maybeExecuted bool  // an earlier send may have been carried out
}

// newPoll prepares a poll. It calls onReply, unless that is nil, for each answer, one at a
// time. If onReply returns true, the other answers do not matter.
func (d *Driver) newPoll(onReply func(node int, r reply) (enough bool)) *poll {
	return &poll{
		d: d, onReply: onReply, done: make(chan struct{}), pending: 1, // 1 until closed
		commands: make([]command, len(d.nodes)), replies: slices.Repeat([]reply{{err: errDown}}, len(d.nodes)),
	}
}

// send gives a command to a node. If the node is down, the answer is errDown.
func (p *poll) send(node int, code byte, l *lock, args ...string) {
	cmd := p.add(node, code, l, args...)
	if n := p.d.nodes[node]; !n.send(cmd) {
		p.onAnswer(cmd, "", errDown)
	}
}

// sendEvenIfDown gives a command to a node, also if it is down now. The command is dropped if
// too many others are queued, or if it can't be sent before its sendBy.
func (p *poll) sendEvenIfDown(node int, code byte, l *lock, args ...string) {
	p.d.nodes[node].sendEvenIfDown(p.add(node, code, l, args...))
}

// cleanUp sends a command that cleans up after the driver, and returns without waiting. A
// command that can't be sent before end may be dropped. The poll does not wait for a node that is
// down.
func (d *Driver) cleanUp(nodes quorum.Set, end driver.Instant, code byte, l *lock, args ...string) *poll {
	p := d.newPoll(nil)
	for i := range nodes.All() {
		n, cmd := d.nodes[i], &p.commands[i]
		cmd.sendBy = end
		if n.downReason() == nil {
			p.add(i, code, l, args...)
		} else {
			cmd.set(code, l, args...)
		}
		n.sendEvenIfDown(cmd)
	}
	p.close()
	return p
}

func (p *poll) add(node int, code byte, l *lock, args ...string) *command {
	cmd := &p.commands[node]
	cmd.node, cmd.receiver = node, p
	cmd.set(code, l, args...)
	p.mu.Lock()
	p.pending++
	p.replies[node].err = errOverdue
	p.mu.Unlock()
	return cmd
}

// close says that no more nodes will be asked.
func (p *poll) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending--
	p.settle(false)
}

// onAnswer implements [receiver].
func (p *poll) onAnswer(cmd *command, text string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending--
	r := reply{text, err, cmd.maybeExecuted}
	p.replies[cmd.node] = r
	p.settle(p.onReply != nil && p.onReply(cmd.node, r))
}

// settle closes p.done if the answers are enough or complete. It is called with p.mu held.
func (p *poll) settle(enough bool) {
	if (enough || p.pending == 0) && !p.finished {
		p.finished = true
		close(p.done)
	}
}

// wait returns the replies so far when they are enough, when ctx is done, or after the timeout.
func (p *poll) wait(ctx context.Context, timeout time.Duration) []reply {
	select {
	case <-p.done:
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.replies)
}

// minorityTimeout is how long the driver waits for the other nodes when a majority has answered,
// where it does not need them. So a node that hangs costs a process little that lives only briefly.
const minorityTimeout = 50 * time.Millisecond

// pollMost sends the same request to all nodes and returns their replies. It waits up to the
// timeout for a majority whose replies count, and then a little for the others. If counts is nil,
// all answers count.
func (d *Driver) pollMost(
	ctx context.Context, timeout time.Duration, code byte, l *lock, counts func(r reply) bool,
) []reply {
	p, majority := d.newMajorityPoll(counts)
	p.sendToAll(code, l)
	return p.waitMost(ctx, majority, timeout)
}

// sendToAll gives the command to all nodes.
func (p *poll) sendToAll(code byte, l *lock) {
	for i := range p.d.nodes {
		p.send(i, code, l)
	}
	p.close()
}

// readTimeout is how long to wait for a majority that answers a question.
func (d *Driver) readTimeout() time.Duration { return max(d.conf.timeout, shortRetryTimeout) }

// newMajorityPoll returns a poll, and a channel that is closed when the replies of a majority
// count.
func (d *Driver) newMajorityPoll(counts func(r reply) bool) (p *poll, majority chan struct{}) {
	majority = make(chan struct{})
	left := d.params.Quorum()
	return d.newPoll(func(_ int, r reply) bool {
		if r.err == nil && (counts == nil || counts(r)) {
			if left--; left == 0 {
				close(majority)
			}
		}
		return false
	}), majority
}

// waitMost waits for the majority up to the timeout, and then for the others.
func (p *poll) waitMost(ctx context.Context, majority <-chan struct{}, timeout time.Duration) []reply {
	select {
	case <-majority:
		return p.wait(ctx, min(minorityTimeout, timeout))
	case <-p.done:
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	return p.wait(ctx, 0)
}

// drain waits until the nodes have carried out the commands that are queued. It waits a moment for
// a hung node too, in case the node continues just now, but not for one whose connection is broken.
func (d *Driver) drain(deadline time.Time) {
	p, majority := d.newMajorityPoll(nil)
	for i, n := range d.nodes {
		n.mu.Lock()
		broken := n.downErr != nil
		n.mu.Unlock()
		if !broken {
			p.sendEvenIfDown(i, codeShowNode, noLock())
		}
	}
	p.close()
	p.waitMost(context.Background(), majority, min(time.Until(deadline), d.conf.timeout))
}

// requireMajority returns an error unless a majority has answered.
func (d *Driver) requireMajority(replies []reply) error {
	answered := 0
	for _, r := range replies {
		if r.err == nil {
			answered++
		}
	}
	if answered < d.params.Quorum() {
		return d.noMajority(reasonsOf(replies))
	}
	return nil
}
