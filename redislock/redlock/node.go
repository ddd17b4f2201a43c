package redlock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
)

const (
	// maxQueue bounds what may wait for a node. Beyond it the node counts as down.
	maxQueue = 1 << 14

	// The pauses between attempts to reach a node that is broken.
	leastPause = 20 * time.Millisecond
	mostPause  = time.Second
)

// A node is one of the N servers, and the one connection to it. Its goroutine sends what has gathered, as one call, and waits for the
// answer before it sends the next; so orders are carried out in the order in which they were given, and a release never overtakes what
// it releases, also while the node hangs. Nobody else waits for a node: who gives it an order either has its answer brought, or is
// told at once that the node is down.
//
// A node is down when it has not answered for as long as [NodeTimeout], when its connection broke and the next one does not stand
// yet, or when too much waits for it. A node that hangs needs no probing: the call that it has not answered is the probe.
type node struct {
	index   int
	address string
	cluster string // as nodes store it
	timeout time.Duration
	dial    func(context.Context) (rueidis.Client, error)
	greet   func(ctx context.Context, n *node, c rueidis.Client) error // checks what answers, before anything else is sent
	notice  func()                                                     // that this node wants looking after

	life  context.Context //nolint:containedctx // ends with the driver
	calls context.Context //nolint:containedctx // that of calls: no caller's, because a connection is not given up with a caller
	wake  chan struct{}   // of one

	mu      sync.Mutex
	client  rueidis.Client // nil while there is none
	wires   map[*wire]bool // connections that are open; none of a user's client
	queue   []*order
	refused []*order       // what frees locks and was not carried out, for want of memory; to be queued again
	retryAt driver.Instant // when
	resting bool           // the goroutine waits for orders
	busy    driver.Instant // since when the call under way is; zero without one
	broken  error          // why there is no connection; nil if there is, or none was needed yet
	suspect bool           // it has said that it is not admitted, or nobody has asked yet
}

// send gives the node an order, and reports whether it took it: it does not when it is down.
func (n *node) send(o *order) bool {
	n.mu.Lock()
	if n.isDown() {
		n.mu.Unlock()
		return false
	}
	n.enqueue(o)
	return true
}

// keep is send for what must reach the node even if it is down, as soon as it is not: what frees a lock. Its end counts only if no call
// is under way: else that may take the lock at whatever time the node goes on. What has an end is given up when too much waits already, and
// in the worst case all is: the lock frees itself at the end of its TTL.
func (n *node) keep(o *order) {
	n.mu.Lock()
	if !n.busy.IsZero() {
		o.end = driver.Instant{}
	}
	if all := len(n.queue) + len(n.refused); all >= 2*maxQueue || all >= maxQueue && !o.end.IsZero() {
		n.mu.Unlock()
		o.answer("", errDown)
		return
	}
	n.enqueue(o)
}

// enqueue is called with n.mu held, and unlocks it.
func (n *node) enqueue(o *order) {
	n.queue = append(n.queue, o)
	wake := n.resting
	n.resting = false
	n.mu.Unlock()
	if wake {
		select {
		case n.wake <- struct{}{}:
		default: // it has yet to see that it was woken before
		}
	}
}

// isDown is called with n.mu held.
func (n *node) isDown() bool {
	return n.broken != nil || len(n.queue) >= maxQueue || !n.busy.IsZero() && driver.Now().Sub(n.busy) > n.timeout
}

// why returns why the node is down, or nil.
func (n *node) why() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.broken != nil:
		return n.broken
	case n.isDown():
		return errOverdue
	}
	return nil
}

const errOverdue driver.Sentinel = "it does not answer"

// hungFor reports whether the call under way has gone unanswered for longer than d.
func (n *node) hungFor(d time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.busy.IsZero() && driver.Now().Sub(n.busy) > d
}

// withdraw takes an order back, and reports whether that was possible: it was not sent, and will not be.
func (n *node) withdraw(o *order) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if o.state == unsent {
		o.state = withdrawn
		o.to = nil
	}
	return o.state == withdrawn
}

// run is the node's goroutine.
func (n *node) run() {
	defer n.hangUp(nil)
	var c call
	var batch []*order
	pause := leastPause
	for n.life.Err() == nil {
		if batch = n.take(batch[:0]); len(batch) == 0 {
			n.sleep()
			continue
		}
		answers, err := n.call(&c, batch)
		if err != nil {
			n.fail(batch, err)
			n.rest(&pause)
			continue
		}
		pause = leastPause
		n.deliver(batch, answers)
	}
}

// sleep returns when there is something to do.
func (n *node) sleep() {
	n.mu.Lock()
	var again <-chan time.Time
	if len(n.refused) > 0 {
		timer := time.NewTimer(n.retryAt.Left(driver.Now()))
		defer timer.Stop()
		again = timer.C
	}
	n.mu.Unlock()
	select {
	case <-n.wake:
	case <-again:
	case <-n.life.Done():
	}
}

// rest lets time pass while the node is broken.
func (n *node) rest(pause *time.Duration) {
	timer := time.NewTimer(*pause/2 + rand.N(*pause/2))
	defer timer.Stop()
	*pause = min(2**pause, mostPause)
	select {
	case <-timer.C:
	case <-n.life.Done():
	}
}

// take moves orders from the queue to a batch. While the node is broken and nothing waits for it, the batch is a question, so that
// it is found when it is back.
func (n *node) take(batch []*order) []*order {
	now := driver.Now()
	var late []*order
	n.mu.Lock()
	if len(n.refused) > 0 && n.retryAt.Reached(now) { // behind the others: many of them would keep these from being carried out
		n.queue, n.refused = append(n.queue, n.refused...), nil
	}
	taken := 0
	for _, o := range n.queue {
		if len(batch) == maxBatch || len(batch) > 0 && (o.script() == restScript || batch[0].script() == restScript) {
			break
		}
		taken++
		switch {
		case o.state == withdrawn:
		case !o.end.IsZero() && o.end.Reached(now):
			o.state = withdrawn
			late = append(late, o)
		default:
			o.state = sent
			batch = append(batch, o)
		}
	}
	n.queue = slices.Delete(n.queue, 0, taken)
	if len(batch) == 0 && n.broken != nil {
		o := new(order)
		o.set('s', noLock())
		batch = append(batch, o)
	}
	if n.resting = len(batch) == 0; !n.resting {
		n.busy = now
	}
	n.mu.Unlock()
	for _, o := range late {
		o.answer("", errOverdue)
	}
	return batch
}

func (o *order) answer(answer string, err error) {
	if o.to != nil {
		o.to.answered(o, answer, err)
	}
}

// call sends a batch and waits for the answers, for as long as the connection lives.
func (n *node) call(c *call, batch []*order) ([]string, error) {
	client, err := n.connected()
	if err != nil {
		return nil, err
	}
	c.write(n.cluster, n.address, batch)
	answers, err := n.eval(client, c)
	if err == nil && len(answers) != len(batch) {
		err = fmt.Errorf("the script gave %d answers to %d requests", len(answers), len(batch))
	}
	return answers, err
}

// eval makes a call. A server that does not know the script is sent its text.
func (n *node) eval(client rueidis.Client, c *call) ([]string, error) {
	b := client.B().Evalsha().Sha1(c.script.sha1).Numkeys(int64(len(c.keys)))
	r := client.Do(n.calls, b.Key(c.keys...).Arg(c.args...).Build())
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		b := client.B().Eval().Script(c.script.text).Numkeys(int64(len(c.keys)))
		r = client.Do(n.calls, b.Key(c.keys...).Arg(c.args...).Build())
	}
	return r.AsStrSlice()
}

// deliver brings a batch its answers. Of what was not done, what frees locks is asked again later.
func (n *node) deliver(batch []*order, answers []string) {
	n.mu.Lock()
	n.busy = driver.Instant{}
	n.broken = nil
	n.mu.Unlock()
	for i, o := range batch {
		text, refused := strings.CutPrefix(answers[i], refusal)
		if !refused {
			o.answer(text, nil)
			continue
		}
		o.answer("", errors.New(graphic(text)))
		if o.frees() {
			o.to = nil // who waited is told that it takes longer
			n.retry(o)
		}
	}
}

// retry notes what is to be asked again.
func (n *node) retry(o *order) {
	n.mu.Lock()
	defer n.mu.Unlock()
	o.state = unsent
	if len(n.refused) == 0 {
		n.retryAt = driver.Now().Add(mostPause)
	}
	n.refused = append(n.refused, o)
}

// refusal begins the answer to a request that Redis did not carry out, mostly because it has no memory left.
const refusal = "x "

// fail notes that the node is broken.
func (n *node) fail(batch []*order, err error) {
	var again, over []*order
	n.mu.Lock()
	n.busy = driver.Instant{}
	n.broken = clean(err)
	for _, o := range slices.Concat(batch, n.refused, n.queue) {
		switch {
		case o.frees():
			o.doubt = o.doubt || o.state == sent
			o.state = unsent
			again = append(again, o)
		case o.state != withdrawn:
			over = append(over, o)
			if o.state == unsent {
				o.state = withdrawn
			}
		}
	}
	n.queue, n.refused = again, nil
	n.mu.Unlock()
	if !isReply(err) {
		n.hangUp(err)
	}
	for _, o := range over {
		o.answer("", err)
	}
}

// frees reports whether an order frees something, and so must not be forgotten.
func (o *order) frees() bool {
	return o.state != withdrawn && (o.code == 'f' || o.code == 'b' || o.code == 'x' || o.code == 'd')
}

// isReply reports whether an error is what the server answered.
func isReply(err error) bool {
	_, ok := rueidis.IsRedisErr(err)
	return ok
}

// connected returns the client, and makes one if there is none.
func (n *node) connected() (rueidis.Client, error) {
	n.mu.Lock()
	client := n.client
	n.mu.Unlock()
	if client != nil {
		return client, nil
	}
	ctx, cancel := context.WithTimeout(n.life, dialTimeout)
	defer cancel()
	client, err := n.dial(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w within %v", errOverdue, dialTimeout)
	}
	if err != nil {
		return nil, err
	}
	if err := n.greet(ctx, n, client); err != nil {
		client.Close()
		return nil, err
	}
	n.mu.Lock()
	if n.life.Err() != nil {
		n.mu.Unlock()
		client.Close()
		return nil, driver.ErrClosed
	}
	n.client = client
	n.suspect = true
	n.mu.Unlock()
	n.notice()
	return client, nil
}

// hangUp gives the connections up. They are closed before the client: that would wait for answers.
func (n *node) hangUp(why error) {
	n.mu.Lock()
	client, wires := n.client, slices.Collect(maps.Keys(n.wires))
	n.client = nil
	if why != nil {
		n.broken = clean(why)
	}
	n.mu.Unlock()
	for _, w := range wires {
		_ = w.Close() // it is given up, whatever becomes of it
	}
	if client != nil {
		client.Close()
	}
}

// A wire is a connection that hangUp can close, also while no client has it yet.
type wire struct {
	net.Conn
	node *node
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	w.node.mu.Lock()
	delete(w.node.wires, w)
	w.node.mu.Unlock()
	return w.Conn.Close()
}

// A dialer makes a connection; the user's options may have one.
type dialer = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialFor returns what o connects with, such that the node knows the connections.
func (n *node) dialFor(o rueidis.ClientOption) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(n.life, cancel)()
		switch {
		case o.DialCtxFn != nil:
			conn, err = o.DialCtxFn(ctx, address, d, secure)
		case secure != nil:
			conn, err = (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, "tcp", address)
		default:
			conn, err = d.DialContext(ctx, "tcp", address)
		}
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.life.Err() != nil {
			_ = conn.Close() // nothing was sent
			return nil, driver.ErrClosed
		}
		w := &wire{conn, n}
		n.wires[w] = true
		return w, nil
	}
}
