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
	"github.com/sniblock/snib/redislock/rediskit"
)

const (
	// maxQueued limits the commands that wait for a node. Beyond it the node counts as down.
	maxQueued = 1 << 14

	// The pauses between attempts to reach a broken node lie between these limits.
	minRetryPause = 20 * time.Millisecond
	maxRetryPause = time.Second
)

// A node is one of the N servers, with the one connection to it. The node's goroutine sends all
// queued commands as one call, and waits for the answer before it sends the next call. Commands
// are therefore carried out in the order in which they were queued, and a release never
// overtakes what it releases, also while the node hangs; after the loss of a connection, releases
// are repeated. Nobody else waits for a node: a caller either gets its answer through a
// [receiver], or is told at once that the node is down.
//
// A node is down when it has not answered for NodeTimeout, when its connection broke and no new
// one exists yet, or when too many commands are queued. A node that hangs needs no probe: the
// unanswered call is the probe.
type node struct {
	index   int
	address string
	cluster string // as the nodes store it
	timeout time.Duration
	dial    func(context.Context) (rueidis.Client, error)

	// handshake checks the server on a new connection before anything else is sent.
	handshake func(ctx context.Context, n *node, c rueidis.Client) error

	toCheck chan struct{} // has the capacity 1; tells the agent to check this node

	ctx    context.Context //nolint:containedctx // ends with the driver
	wakeup chan struct{}   // has the capacity 1

	mu     sync.Mutex
	client rueidis.Client        // nil without a connection
	conns  map[*trackedConn]bool // open connections
	queue  []*command

	// retryQueue has the commands that free locks and must be sent again, because the node was
	// out of memory, or because of late. They are queued again at retryAt.
	retryQueue []*command
	retryAt    driver.Instant

	// late has the nonces and the ids of requests that were sent on a connection that is lost,
	// each with the time until which the node may still execute them. Until then, the commands
	// that free what such a request takes are repeated.
	late map[string]driver.Instant

	idle      bool           // the goroutine waits for commands
	busySince driver.Instant // start of the call under way; zero without one
	reported  bool           // the agent knows that this call is not answered

	// downErr is why there is no working connection. It is nil if there is one, or if none
	// was needed yet.
	downErr error

	// suspected means that the node must be checked for admission: it has said that it is not
	// admitted, or has not been asked yet.
	suspected bool
}

// send queues a command for the node. It returns false, and queues nothing, if the
// node is down. If a call is unanswered, the agent then looks whether its connection is dead.
func (n *node) send(cmd *command) bool {
	n.mu.Lock()
	if n.isDown() {
		isNews := !n.busySince.IsZero() && !n.reported
		n.reported = n.reported || isNews
		n.mu.Unlock()
		if isNews {
			n.wakeAgent()
		}
		return false
	}
	n.enqueue(cmd)
	return true
}

// sendEvenIfDown queues a command that must reach the node even if the node is down now,
// because it frees a lock. The command expires at its sendBy only if no call is under way; an
// unanswered call may still take the lock whenever the node continues. If too many commands are
// queued already, a command with an expiry is dropped first, and any command at twice that
// number. The lock then frees itself at the end of its TTL.
func (n *node) sendEvenIfDown(cmd *command) {
	n.mu.Lock()
	if !n.busySince.IsZero() {
		cmd.sendBy = driver.Instant{}
	}
	if all := len(n.queue) + len(n.retryQueue); all >= 2*maxQueued || all >= maxQueued && !cmd.sendBy.IsZero() {
		n.mu.Unlock()
		cmd.deliver("", errDown)
		return
	}
	n.enqueue(cmd)
}

// enqueue appends a command to the queue. It is called with n.mu held, and unlocks it.
func (n *node) enqueue(cmd *command) {
	n.queue = append(n.queue, cmd)
	wake := n.idle
	n.idle = false
	n.mu.Unlock()
	if wake {
		select {
		case n.wakeup <- struct{}{}:
		default: // an earlier wakeup is still pending
		}
	}
}

// isDown reports whether the node is down. It is called with n.mu held.
func (n *node) isDown() bool {
	return n.downErr != nil || len(n.queue) >= maxQueued || !n.busySince.IsZero() &&
		driver.Now().Sub(n.busySince) > n.timeout
}

// downReason returns why the node is down, or nil if it is not.
func (n *node) downReason() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.downErr != nil:
		return n.downErr
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
	return !n.busySince.IsZero() && driver.Now().Sub(n.busySince) > d
}

// suspect makes the agent check whether the node is admitted.
func (n *node) suspect() {
	n.mu.Lock()
	isNews := !n.suspected
	n.suspected = true
	n.mu.Unlock()
	if isNews {
		n.wakeAgent()
	}
}

func (n *node) wakeAgent() {
	select {
	case n.toCheck <- struct{}{}:
	default: // an earlier wakeup is still pending
	}
}

// cancel withdraws a command. It reports whether the command was not sent and never will be.
func (n *node) cancel(cmd *command) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cmd.state == unsent {
		cmd.state = canceled
		cmd.receiver = nil
	}
	return cmd.state == canceled
}

// run is the node's goroutine. It sends batches until the driver is closed.
func (n *node) run() {
	defer n.disconnect(nil)
	var c scriptCall
	var batch []*command
	pause := minRetryPause
	for n.ctx.Err() == nil {
		if batch = n.nextBatch(batch[:0]); len(batch) == 0 {
			n.awaitWork()
			continue
		}
		err := n.execute(&c, batch)
		if isForbidden(err) && batch[0].lock != noLock() {
			err = n.executeEach(&c, batch, err)
		} else if err == nil {
			n.deliver(batch)
		} else {
			n.fail(batch, err)
		}
		if err != nil {
			n.backOff(&pause)
			continue
		}
		pause = minRetryPause
	}
}

// executeEach sends the commands of a batch one by one, after the server has refused the batch
// because our user may not access the keys of some of them. Those fail for good, and the node is
// not broken: otherwise one name that is forbidden would hold up all others.
func (n *node) executeEach(c *scriptCall, batch []*command, refusal error) error {
	for i := range batch {
		one := batch[i : i+1]
		err := refusal
		if len(batch) > 1 {
			err = n.execute(c, one)
		}
		switch {
		case isForbidden(err):
			n.markAnswered()
			one[0].deliver("", sanitize(err))
		case err != nil:
			n.fail(batch[i:], err)
			return err
		default:
			n.deliver(one)
		}
	}
	return nil
}

// isForbidden reports whether the server has refused a request because of our user's rights.
func isForbidden(err error) bool {
	e, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(e.Error(), "NOPERM")
}

// awaitWork returns when there is something to do.
func (n *node) awaitWork() {
	n.mu.Lock()
	var retryDue <-chan time.Time
	if len(n.retryQueue) > 0 {
		retryDue = time.After(n.retryAt.Left(driver.Now()))
	}
	n.mu.Unlock()
	select {
	case <-n.wakeup:
	case <-retryDue:
	case <-n.ctx.Done():
	}
}

// backOff pauses between attempts to reach a broken node, and doubles the next pause.
func (n *node) backOff(pause *time.Duration) {
	due := time.After(*pause/2 + rand.N(*pause/2))
	*pause = min(2**pause, maxRetryPause)
	select {
	case <-due:
	case <-n.ctx.Done():
	}
}

// nextBatch moves commands from the queue to a batch. If the node is broken and the queue is
// empty, the batch has one status request, which detects that the node is back.
func (n *node) nextBatch(batch []*command) []*command {
	now := driver.Now()
	var late []*command
	n.mu.Lock()
	if len(n.retryQueue) > 0 && n.retryAt.Reached(now) {
		// Put them behind the others: many commands that fail would hold up the rest.
		n.queue, n.retryQueue = append(n.queue, n.retryQueue...), nil
	}
	taken := 0
	for _, cmd := range n.queue {
		if len(batch) == maxBatch || len(batch) > 0 && (cmd.script() == adminScript || batch[0].script() == adminScript) {
			break
		}
		taken++
		switch {
		case cmd.state == canceled:
		case !cmd.sendBy.IsZero() && cmd.sendBy.Reached(now):
			cmd.state = canceled
			late = append(late, cmd)
		default:
			cmd.state = sent
			batch = append(batch, cmd)
		}
	}
	n.queue = slices.Delete(n.queue, 0, taken)
	if len(batch) == 0 && n.downErr != nil {
		cmd := new(command)
		cmd.set(codeShowNode, noLock())
		batch = append(batch, cmd)
	}
	if n.idle = len(batch) == 0; !n.idle {
		n.busySince, n.reported = now, false
	}
	n.mu.Unlock()
	for _, cmd := range late {
		cmd.deliver("", errOverdue)
	}
	return batch
}

func (cmd *command) deliver(answer string, err error) {
	if cmd.receiver != nil {
		cmd.receiver.onAnswer(cmd, answer, err)
	}
}

// execute sends a batch and waits for the answers as long as the connection lives.
func (n *node) execute(c *scriptCall, batch []*command) error {
	var answers []string
	client, err := n.connect()
	isSent := err == nil
	if isSent {
		c.write(n.cluster, n.address, batch)
		answers, err = eval(client, c)
		isSent = !rediskit.IsDialError(err) // the client connects again by itself
	}
	if !isSent {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, cmd := range batch {
			cmd.state = unsent
		}
	}
	switch {
	case err != nil:
		return err
	case len(answers) != len(batch):
		return fmt.Errorf("the script gave %d answers to %d requests", len(answers), len(batch))
	}
	for i, cmd := range batch {
		cmd.answer = answers[i]
	}
	return nil
}

// eval makes a call. If the server does not know the script, eval sends its text. The call has no
// context of a caller: a connection is not given up with a caller.
func eval(client rueidis.Client, c *scriptCall) ([]string, error) {
	ctx, n := context.Background(), int64(len(c.keys))
	call := client.B().Evalsha().Sha1(c.script.SHA1()).Numkeys(n).Key(c.keys...).Arg(c.args...).Build()
	r := client.Do(ctx, call)
	if e, ok := rueidis.IsRedisErr(r.Error()); ok && e.IsNoScript() {
		call = client.B().Eval().Script(c.script.Text()).Numkeys(n).Key(c.keys...).Arg(c.args...).Build()
		r = client.Do(ctx, call)
	}
	return r.AsStrSlice()
}

// deliver hands the answers of a batch to the receivers. A command that frees a lock is sent again
// later if it failed on the node, or if the node may execute late what it undoes.
func (n *node) deliver(batch []*command) {
	n.markAnswered()
	for _, cmd := range batch {
		text, refused := strings.CutPrefix(cmd.answer, errorPrefix)
		if refused {
			cmd.deliver("", rediskit.Refusal(printable(text)))
		} else {
			cmd.deliver(text, nil)
		}
		if cmd.mustDeliver() {
			cmd.receiver = nil // the receiver has its answer
			n.retry(cmd, refused)
		}
	}
}

// markAnswered records that the node has answered, and so is not broken.
func (n *node) markAnswered() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busySince, n.downErr = driver.Instant{}, nil
}

// retry schedules a command that is to be sent again: because it failed, or while the node may
// execute late what it undoes.
func (n *node) retry(cmd *command, failed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if until, late := n.late[cmd.args[0]]; late && !failed {
		cmd.sendBy = until
	} else if !failed {
		return
	}
	cmd.state = unsent
	if len(n.retryQueue) == 0 {
		n.retryAt = driver.Now().Add(maxRetryPause)
	}
	n.retryQueue = append(n.retryQueue, cmd)
}

// markLate records that the node may yet execute a request, although the connection is lost on
// which it was sent: the network, or a busy server, may hold it back. The commands that free what
// it takes are sent on another connection, and may be executed before it. It is called with n.mu
// held.
func (n *node) markLate(cmd *command) {
	if n.late == nil {
		n.late = make(map[string]driver.Instant)
	}
	until := driver.Now().Add(driver.AnswerTimeout)
	n.late[cmd.args[0]] = until // the nonce
	if cmd.code == codeTake {
		n.late[cmd.args[5]] = until // the node may record it as a waiter
	}
}

// errorPrefix begins the answer to a request that Redis failed to carry out, usually because it
// is out of memory.
const errorPrefix = "x "

// fail marks the node as broken. It keeps the commands that free locks and fails all others.
func (n *node) fail(batch []*command, err error) {
	var again, failed []*command
	_, isReply := rueidis.IsRedisErr(err)
	isLost := !isReply // the connection
	n.mu.Lock()
	n.busySince = driver.Instant{}
	n.downErr = sanitize(err)
	now := driver.Now()
	maps.DeleteFunc(n.late, func(_ string, until driver.Instant) bool { return until.Reached(now) })
	for _, cmd := range slices.Concat(batch, n.retryQueue, n.queue) {
		if isLost && cmd.state == sent && (cmd.code == codeTake || cmd.code == codeExtend) {
			n.markLate(cmd)
		}
		switch {
		case cmd.mustDeliver():
			cmd.maybeExecuted = cmd.maybeExecuted || cmd.state == sent
			cmd.state = unsent
			again = append(again, cmd)
		case cmd.state != canceled:
			failed = append(failed, cmd)
			if cmd.state == unsent {
				cmd.state = canceled
			}
		}
	}
	n.queue, n.retryQueue = again, nil
	n.mu.Unlock()
	if isLost {
		n.disconnect(err)
	}
	for _, cmd := range failed {
		cmd.deliver("", sanitize(err))
	}
}

// mustDeliver reports whether a command frees a lock or removes a waiter, and
// so must not be dropped.
func (cmd *command) mustDeliver() bool {
	return cmd.state != canceled && strings.IndexByte("fbxd", cmd.code) >= 0
}

// connect returns the client, and creates one if there is none.
func (n *node) connect() (rueidis.Client, error) {
	n.mu.Lock()
	client := n.client
	n.mu.Unlock()
	if client != nil {
		return client, nil
	}
	ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
	defer cancel()
	client, err := n.dial(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("%w within %v", errOverdue, dialTimeout)
	}
	if err != nil {
		return nil, err
	}
	if err := n.handshake(ctx, n, client); err != nil {
		client.Close()
		return nil, err
	}
	n.mu.Lock()
	if n.ctx.Err() != nil {
		n.mu.Unlock()
		client.Close()
		return nil, driver.ErrClosed
	}
	n.client, n.downErr, n.suspected = client, nil, true // or the agent could not ask it
	n.busySince = driver.Now()                           // the call begins only now, however long the dial took
	n.mu.Unlock()
	n.wakeAgent()
	return client, nil
}

// disconnect closes the connections, and then the client. In the other order, closing the
// client would wait for answers.
func (n *node) disconnect(why error) {
	n.mu.Lock()
	client, conns := n.client, slices.Collect(maps.Keys(n.conns))
	n.client = nil
	if why != nil {
		n.downErr = sanitize(why)
	}
	n.mu.Unlock()
	for _, w := range conns {
		_ = w.Close() // it is given up in any case
	}
	if client != nil {
		client.Close()
	}
}

// A trackedConn is a connection that disconnect can close even before a client has it.
type trackedConn struct {
	net.Conn
	node *node
}

// Close implements [net.Conn].
func (w *trackedConn) Close() error {
	w.node.mu.Lock()
	delete(w.node.conns, w)
	w.node.mu.Unlock()
	return w.Conn.Close()
}

// A dialer makes a connection. The user's options may provide one.
type dialer = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialFor returns a dialer with the options o that registers its connections with the node.
func (n *node) dialFor(o rueidis.ClientOption) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(n.ctx, cancel)()
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
		if n.ctx.Err() != nil {
			_ = conn.Close() // nothing was sent
			return nil, driver.ErrClosed
		}
		w := &trackedConn{conn, n}
		n.conns[w] = true
		return w, nil
	}
}
