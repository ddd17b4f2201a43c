package redislock

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// A sender sends commands to fullScript. Commands that come while a batch for their slot is in
// flight gather, and go together in the next batch: the more there are, the less each costs. A
// release can't overtake the request that it releases, because it is sent after that was
// answered.
type sender struct {
	conn          Conn
	metaKey       func(slot uint16) string // key of what the store knows about itself
	longLeasesKey func(slot uint16) string // key of the leases longer than the floor

	// Arguments of the scripts: the floor of the grace period, or noGrace, and the longest TTL.
	floor, maxTTL string

	durable bool // DurableAOF

	mu     sync.Mutex
	queues map[uint16]*slotQueue // of the slots for which a batch is in flight; guarded by mu
}

// A slotQueue has the commands that wait for the next batch of a slot. It is guarded by sender.mu.
type slotQueue struct{ waiting []*command }

// A command is one request to fullScript, and its answer.
type command struct {
	keys  *[4]string
	code  string // of its function in the script
	args  []string
	saved bool // with DurableAOF, what it did counts only when it is on the disk

	sent   driver.Instant // just before the call
	answer string
	err    error
	done   chan struct{} // closed when there is an answer or an error

	abandoned bool // nobody waits for the answer, which may still come
	unsent    bool // removed from the queue before it was sent
}

const (
	// maxBatch bounds the commands of a batch: the server serves no other client while it runs
	// a script.
	maxBatch = 64

	// batchTimeout bounds a call.
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
		q = &slotQueue{}
		s.queues[slot] = q
		go s.sendBatches(slot, q)
	}
	q.waiting = append(q.waiting, cmd)
	s.mu.Unlock()
	select {
	case <-cmd.done:
		return cmd.err
	case <-ctx.Done():
		cmd.unsent = s.remove(q, cmd)
		cmd.abandoned = !cmd.unsent
		return context.Cause(ctx)
	}
}

// remove takes a waiting command out of the queue. It reports whether the command was still
// there.
func (s *sender) remove(q *slotQueue, cmd *command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(q.waiting, cmd)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	return i >= 0
}

// sendBatches sends batches until no command waits.
func (s *sender) sendBatches(slot uint16, q *slotQueue) {
	for {
		commands := s.nextBatch(slot, q)
		if len(commands) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
		s.sendBatch(ctx, slot, commands)
		cancel()
	}
}

// nextBatch takes the commands of the next batch out of the queue. If there are none, it removes
// the queue.
func (s *sender) nextBatch(slot uint16, q *slotQueue) []*command {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(q.waiting), maxBatch)
	if n == 0 {
		delete(s.queues, slot)
		return nil
	}
	commands := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return commands
}

// sendBatch sends commands and gives each its answer. If the server has refused them because our
// user may not access the keys of some of them, it sends them one by one: otherwise one name that
// is forbidden would fail all others that happen to be sent with it.
func (s *sender) sendBatch(ctx context.Context, slot uint16, commands []*command) {
	sent := driver.Now()
	reply, unsaved := s.eval(ctx, commands, s.call(slot, commands))
	if len(commands) > 1 && isForbidden(reply.Err) {
		for i := range commands {
			s.sendBatch(ctx, slot, commands[i:i+1])
		}
		return
	}
	deliver(commands, reply, unsaved, sent)
}

// isForbidden reports whether the server has refused a request because of our user's rights. It
// has then executed nothing.
func isForbidden(err error) bool {
	var reply *ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Text, "NOPERM")
}

// call makes the call of fullScript for commands.
func (s *sender) call(slot uint16, commands []*command) Call {
	keys := append(make([]string, 0, 2+4*len(commands)), s.metaKey(slot), s.longLeasesKey(slot))
	args := append(make([]string, 0, 3+8*len(commands)), s.floor, s.maxTTL, flag(s.durable))
	for _, cmd := range commands {
		keys = append(keys, cmd.keys[:]...)
		args = append(append(args, cmd.code, strconv.Itoa(len(cmd.args))), cmd.args...)
	}
	return Call{Script: fullScript, Keys: keys, Args: args}
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
		if cmd.done != nil {
			close(cmd.done)
		}
	}
}
