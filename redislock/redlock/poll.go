package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redlock/internal/quorum"
)

// A poll is one request to several nodes, and their answers.
type poll struct {
	d      *Driver
	orders []order // by node
	judge  func(node int, r reply) (enough bool)
	done   chan struct{} // closed when enough is known, or all have answered

	mu      sync.Mutex
	replies []reply // by node
	open    int     // answers to come
	over    bool
}

// A reply is what became of an order.
type reply struct {
	asked bool // the node was given the order
	came  bool // and has answered it, or will not
	text  string
	err   error
	doubt bool // the order may have been carried out before
}

// newPoll prepares a poll. The judge, if there is one, is called for each answer, one at a time; it says whether the others matter.
func (d *Driver) newPoll(judge func(node int, r reply) (enough bool)) *poll {
	return &poll{
		d: d, judge: judge, done: make(chan struct{}), open: 1, // until closed
		orders: make([]order, len(d.nodes)), replies: make([]reply, len(d.nodes)),
	}
}

// ask gives a node an order. If the node is down, that is its answer.
func (p *poll) ask(node int, code byte, l *lock, args ...string) {
	o := p.expect(node, code, l, args...)
	if n := p.d.nodes[node]; !n.send(o) {
		p.answered(o, "", errDown)
	}
}

// insist gives a node an order that it is to have also if it is down now, unless that lasts.
func (p *poll) insist(node int, code byte, l *lock, args ...string) {
	p.d.nodes[node].keep(p.expect(node, code, l, args...))
}

// tidy is insist without waiting for a node that is down.
func (p *poll) tidy(node int, code byte, l *lock, args ...string) {
	n := p.d.nodes[node]
	if n.why() == nil {
		p.insist(node, code, l, args...)
		return
	}
	o := &p.orders[node]
	o.set(code, l, args...)
	n.keep(o)
}

// tidyUp gives nodes an order that tidies up after us, until end, and returns without waiting for it.
func (d *Driver) tidyUp(nodes quorum.Set, end driver.Instant, code byte, l *lock, args ...string) *poll {
	p := d.newPoll(nil)
	for i := range nodes.All() {
		p.orders[i].end = end
		p.tidy(i, code, l, args...)
	}
	p.close()
	return p
}

func (p *poll) expect(node int, code byte, l *lock, args ...string) *order {
	o := &p.orders[node]
	o.node, o.to = node, p
	o.set(code, l, args...)
	p.mu.Lock()
	p.open++
	p.replies[node] = reply{asked: true}
	p.mu.Unlock()
	return o
}

// close says that all have been asked.
func (p *poll) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.settle(false)
}

// answered implements [receiver].
func (p *poll) answered(o *order, text string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	r := &p.replies[o.node]
	r.came, r.text, r.err, r.doubt = true, text, err, o.doubt
	p.settle(p.judge != nil && p.judge(o.node, *r))
}

// settle is called with p.mu held.
func (p *poll) settle(enough bool) {
	if (enough || p.open == 0) && !p.over {
		p.over = true
		close(p.done)
	}
}

// wait returns what has come when there is enough, or at the end of ctx, or when the patience is over.
func (p *poll) wait(ctx context.Context, patience time.Duration) []reply {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]reply(nil), p.replies...)
}

// isOpen reports whether answers are to come that matter.
func (p *poll) isOpen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.over
}

// askAll asks all nodes the same, and returns their answers. It waits for a majority for longer than for the others.
func (d *Driver) askAll(ctx context.Context, code byte, l *lock, args ...string) []reply {
	p := d.newPoll(nil)
	for i := range d.nodes {
		p.ask(i, code, l, args...)
	}
	p.close()
	if replies := p.wait(ctx, d.conf.timeout); d.majority(replies) == nil {
		return replies
	}
	return p.wait(ctx, brief)
}

// drain waits until the nodes have carried out what they were given. It gives one that hangs a moment, too, in case that it goes on just now, but
// none whose connection broke.
func (d *Driver) drain(deadline time.Time) {
	p := d.newPoll(nil)
	for i, n := range d.nodes {
		n.mu.Lock()
		broken := n.broken != nil
		n.mu.Unlock()
		if !broken {
			p.insist(i, 's', noLock())
		}
	}
	p.close()
	p.wait(context.Background(), min(time.Until(deadline), d.conf.timeout))
}

// errorsOf returns why nodes did not answer, by node.
func errorsOf(replies []reply) []error {
	errs := make([]error, len(replies))
	for i, r := range replies {
		switch {
		case !r.asked:
		case !r.came:
			errs[i] = errOverdue
		default:
			errs[i] = r.err
		}
	}
	return errs
}

// majority returns an error unless a majority has answered.
func (d *Driver) majority(replies []reply) error {
	answered := 0
	for _, r := range replies {
		if r.came && r.err == nil {
			answered++
		}
	}
	if answered < d.params.Quorum() {
		return d.silent(reasonsOf(replies))
	}
	return nil
}
