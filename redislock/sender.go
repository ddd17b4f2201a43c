package redislock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A sender sends commands to a script. Commands that come while a batch for their slot is in flight
// gather, and go together in the next: the more there are, the less each costs. A release can't
// overtake the request that it releases, because it is sent after that was answered.
type sender struct {
	conn          Conn
	metaKey       func(slot uint16) string // key of what the store knows about itself
	longLeasesKey func(slot uint16) string // key of the leases longer than the floor

	// Arguments of the scripts: the floor of the grace period, or noGrace, and the longest TTL.
	floor, maxTTL string

	durable bool // DurableAOF

	batches driverkit.SharedTimeout

	mu     sync.Mutex
	queues map[uint16]*slotQueue // by slot; guarded by mu
}

// A slotQueue has the commands that wait for the next batch of a slot.
type slotQueue struct {
	waiting   []*command // guarded by sender.mu
	isSending bool       // a goroutine sends batches; guarded by sender.mu

	batch batch // of that goroutine, which uses its memory again and again
}

// A batch is the commands of one call of a script, and the memory for the call.
type batch struct {
	slot       uint16
	commands   []*command
	keys, args []string
}

// A command is one request to the script, and its answer.
type command struct {
	keys  *[3]string
	code  string    // of its function in the script
	args  [6]string // the first n
	n     int
	saved bool // with DurableAOF, what it did counts only when it is on the disk

	sent   driver.Instant // just before the call
	answer string
	err    error
	done   chan struct{} // closed when there is an answer or an error

	abandoned bool // nobody waits for the answer, which may still come
	unsent    bool // removed from the queue before it was sent
}

// newCommand returns a command with the given arguments: six to acquire, and otherwise two.
func newCommand(keys *[3]string, code string, args ...string) command {
	cmd := command{keys: keys, code: code}
	cmd.n = copy(cmd.args[:], args)
	return cmd
}

const (
	// maxBatch bounds the commands of a batch: the server serves no other client while it runs
	// a script.
	maxBatch = 64

	// batchTimeout bounds a call. A batch may take a quarter longer.
	batchTimeout = 2 * time.Second

	// unansweredTimeout is how long a request may be unanswered when its caller's context ends,
	// before the error says that the store is unavailable.
	unansweredTimeout = 250 * time.Millisecond
)

// noGrace is the argument for the floor of the grace period when there is none.
const noGrace = "off"

// send sends a command and waits for the answer, or until ctx is done. In the latter case the
// command may or may not reach the server.
func (s *sender) send(ctx context.Context, slot uint16, cmd *command) error {
	cmd.done = make(chan struct{})
	s.mu.Lock()
	q := s.queues[slot]
	if q == nil {
		q = &slotQueue{batch: batch{slot: slot}}
		s.queues[slot] = q
	}
	q.waiting = append(q.waiting, cmd)
	isFirst := !q.isSending
	q.isSending = true
	s.mu.Unlock()
	if isFirst {
		batch := s.nextBatch(q)
		if cmd.outlasts(ctx, batch) { // to switch between goroutines would take as long as the call
			s.sendBatch(batch, &q.batch)
			batch = s.nextBatch(q)
		}
		if batch != nil {
			go s.sendBatches(batch, q)
		}
	}
	select {
	case <-cmd.done:
		return cmd.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.Index(q.waiting, cmd)
		if cmd.unsent, cmd.abandoned = i >= 0, i < 0; cmd.unsent {
			q.waiting = slices.Delete(q.waiting, i, i+1)
		}
		return context.Cause(ctx)
	}
}

// outlasts reports whether the caller of the command waits at least as long as its batch may take.
// Nobody cancels a release, so that ends at its deadline.
func (cmd *command) outlasts(ctx, batch context.Context) bool {
	end, _ := batch.Deadline()
	deadline, ok := ctx.Deadline()
	return ctx.Done() == nil || cmd.code == codeRelease && ok && deadline.After(end)
}

// sendBatches sends a batch, and then others until no command waits.
func (s *sender) sendBatches(ctx context.Context, q *slotQueue) {
	for ; ctx != nil; ctx = s.nextBatch(q) {
		s.sendBatch(ctx, &q.batch)
	}
}

// nextBatch takes the commands of the next batch out of the queue, and returns the context for it,
// or nil if there are none.
func (s *sender) nextBatch(q *slotQueue) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(q.waiting), maxBatch)
	if n == 0 {
		clear(q.batch.commands) // for the garbage collector
		q.isSending = false
		return nil
	}
	q.batch.commands = append(q.batch.commands[:0], q.waiting[:n]...)
	q.waiting = slices.Delete(q.waiting, 0, n)
	return s.batches.Context(time.Now())
}

// sendBatch sends commands and gives each its answer. If the server has refused them because our
// user may not access the keys of some of them, it sends them one by one: otherwise one name that
// is forbidden would fail all others that happen to be sent with it.
func (s *sender) sendBatch(ctx context.Context, b *batch) {
	sent := driver.Now()
	saved := s.durable && slices.ContainsFunc(b.commands, func(cmd *command) bool { return cmd.saved })
	reply, unsaved := evalSaved(ctx, s.conn.Eval, s.callFor(b), saved)
	if len(b.commands) > 1 && isForbidden(reply.Err) {
		for _, cmd := range b.commands {
			s.sendBatch(ctx, &batch{slot: b.slot, commands: []*command{cmd}})
		}
		return
	}
	deliver(b.commands, reply, unsaved, sent)
}

// isForbidden reports whether the server has refused a request because of our user's rights. It
// has then executed nothing.
func isForbidden(err error) bool {
	reply, ok := errors.AsType[*ReplyError](err)
	return ok && strings.HasPrefix(reply.Text, "NOPERM")
}

// callFor makes the call for the commands of a batch.
func (s *sender) callFor(b *batch) Call {
	b.keys = append(b.keys[:0], s.metaKey(b.slot), s.longLeasesKey(b.slot))
	b.args = append(b.args[:0], s.floor, s.maxTTL, rediskit.Flag(s.durable))
	for _, cmd := range b.commands {
		b.keys = append(b.keys, cmd.keys[:]...)
		b.args = append(append(b.args, cmd.code), cmd.args[:cmd.n]...)
	}
	return Call{Script: requestScript, Keys: b.keys, Args: b.args}
}

// deliver gives commands their answers. If unsaved is not nil, the disk may lack what they have
// done.
func deliver(commands []*command, r Reply, unsaved error, sent driver.Instant) {
	if r.Err == nil && len(r.Lines) != len(commands) {
		r.Err = badAnswerf("the script gave %d answers for %d requests", len(r.Lines), len(commands))
	}
	for i, cmd := range commands {
		cmd.sent, cmd.err = sent, r.Err
		if r.Err == nil {
			cmd.answer = r.Lines[i]
			if text, failed := strings.CutPrefix(cmd.answer, "x "); failed {
				cmd.err = &ReplyError{Text: text}
			} else if cmd.saved && (cmd.answer == answerDone || cmd.answer == answerNoHold ||
				strings.HasPrefix(cmd.answer, answerGranted+" ")) {
				cmd.err = unsaved // l: an earlier try may have been served
			}
		}
		close(cmd.done)
	}
}
