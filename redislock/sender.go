package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A sender sends commands to the scripts. Commands that come while a batch for their slot is in
// flight gather, and go together in the next batch: the more there are, the less each costs. A
// release can't overtake the request that it releases, because it is sent after that was answered.
type sender struct {
	conn          Conn
	metaKey       func(slot uint16) string // key of what the store knows about itself
	longLeasesKey func(slot uint16) string // key of the leases longer than the floor

	// Arguments of the scripts: the floor of the grace period, or noGrace, and the longest TTL.
	floor, maxTTL string

	durable bool // DurableAOF

	lastCallFailed atomic.Bool // the last call returned an error

	batchPool   sync.Pool // of *batch
	commandPool sync.Pool // of *command
	mu          sync.Mutex
	queues      map[uint16]*slotQueue
}

// A slotQueue has the commands for one slot. It is guarded by sender.mu.
type slotQueue struct {
	slot      uint16
	inFlight  int        // batches
	waiting   []*command // for the next batch
	lastCheck serverCheck
}

// A batch is a group of commands that are sent together, in one call or in two that share a
// pipeline. It also has the buffers for that.
type batch struct {
	commands   []*command
	fast, full []*command // for fastPathScript, releases first; for fullScript
	keys, args []string
}

// A serverCheck records that a server was found to be the one that wrote last.
type serverCheck struct {
	checkedAt driver.Instant // our clock, before the call
	maxTTL    time.Duration  // the check counts for TTLs up to this
	token     uint64         // the last one known

	// Arguments of the scripts: between which times of the server's clock the check is valid, and
	// maxTTL.
	from, until, ttl string
}

// serverCheckLifetime is how long a serverCheck stays valid. No server restarts or is replaced
// in less time.
const serverCheckLifetime = 5 * time.Millisecond

// covers reports whether the check is valid for a request with this TTL that is sent now.
func (c serverCheck) covers(ttl time.Duration, now driver.Instant) bool {
	return ttl <= c.maxTTL && !c.checkedAt.IsZero() && now.Sub(c.checkedAt) < serverCheckLifetime
}

// window returns between which times of the server's clock the check is valid for a TTL.
func (c serverCheck) window(ttl time.Duration, now driver.Instant) (from, until string) {
	if !c.covers(ttl, now) {
		return "0", "0"
	}
	return c.from, c.until
}

// A command is one request to a script, and its answer.
type command struct {
	keys *[4]string

	// Codes a and r are for fastPathScript. A, which is a with more arguments, and all other
	// codes are for fullScript.
	code  string
	args  [6]string
	nargs int // number of args
	ttl   time.Duration
	small bool // a small script may serve codes r, R and A, whose answer is "?" if it can't
	saved bool // with DurableAOF, what it did counts only when it is on the disk

	maybeServed bool // an earlier try failed, but may have been served

	sent      driver.Instant // just before the call
	answer    string
	err       error
	awaited   bool          // send waits for done
	done      chan struct{} // capacity 1; made when it is first waited for
	abandoned bool          // nobody waits for the answer, which may still come
	unsent    bool          // removed from the queue before it was sent
}

// newCommand returns an empty command.
func (s *sender) newCommand() *command { return s.commandPool.Get().(*command) }

// recycle takes back a command whose answer has been read.
func (s *sender) recycle(cmd *command) {
	if !cmd.abandoned {
		*cmd = command{done: cmd.done}
		s.commandPool.Put(cmd)
	}
}

const (
	// maxBatch bounds the commands of a batch: the server serves no other client while it runs
	// a script.
	maxBatch = 64

	// maxInFlight is how many batches for one slot may be in flight if at least secondBatchMin
	// commands wait. While the server serves one batch, the other is written or read. With
	// DurableAOF it is one: the server reads no second batch while the first one waits for the disk.
	maxInFlight    = 2
	secondBatchMin = 8

	// directTimeout bounds a call that is made by the caller's own goroutine, and that the caller's
	// context does not end. The next try is made by another goroutine. An acquisition that was
	// unanswered for longer when its context ended fails with ErrUnavailable.
	directTimeout = 250 * time.Millisecond

	// batchTimeout bounds all other calls.
	batchTimeout = 2 * time.Second
)

// sendCopy sends a copy of a command and returns the answer.
func (s *sender) sendCopy(ctx context.Context, slot uint16, original *command) (answer string, err error) {
	cmd := s.newCommand()
	defer s.recycle(cmd)
	cmd.keys, cmd.code, cmd.args, cmd.nargs = original.keys, original.code, original.args, original.nargs
	cmd.saved, cmd.small = original.saved, original.small
	if err = s.send(ctx, slot, cmd); err != nil {
		return "", err // cmd may still be in flight
	}
	return cmd.answer, nil
}

// send sends a command and waits for the answer, or until ctx is done. In the latter case the
// command may or may not reach the server.
func (s *sender) send(ctx context.Context, slot uint16, cmd *command) error {
	cmd.awaited = false
	s.mu.Lock()
	q := s.queues[slot]
	if q == nil {
		q = &slotQueue{slot: slot}
		s.queues[slot] = q
	}
	if q.inFlight == 0 && !s.lastCallFailed.Load() {
		q.inFlight++
		s.mu.Unlock()
		b := s.newBatch()
		b.commands = append(b.commands, cmd)
		s.sendBatch(newDirectContext(ctx, cmd), q, b) // without a switch to another goroutine
		if s.nextBatch(q, b) {
			go s.runBatches(q, b)
		}
		return cmd.err
	}
	if cmd.done == nil {
		cmd.done = make(chan struct{}, 1)
	}
	cmd.awaited = true
	q.waiting = append(q.waiting, cmd)
	needsBatch := q.inFlight == 0 || !s.durable && q.inFlight < maxInFlight && len(q.waiting) >= secondBatchMin
	if needsBatch {
		q.inFlight++
	}
	s.mu.Unlock()
	if needsBatch {
		if b := s.newBatch(); s.nextBatch(q, b) {
			go s.runBatches(q, b)
		}
	}
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

func (s *sender) newBatch() *batch { return s.batchPool.Get().(*batch) }

// runBatches sends batches until no command waits.
func (s *sender) runBatches(q *slotQueue, b *batch) {
	for more := true; more; more = s.nextBatch(q, b) {
		ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
		s.sendBatch(ctx, q, b)
		cancel()
	}
}

// nextBatch moves waiting commands into b and reports whether there were any. If there were
// none, it frees b.
func (s *sender) nextBatch(q *slotQueue, b *batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(q.waiting), maxBatch)
	b.commands = append(b.commands[:0], q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	if n > 0 {
		return true
	}
	q.inFlight--
	if q.inFlight == 0 && q.slot != 0 { // a Cluster has very many slots
		delete(s.queues, q.slot)
	}
	s.batchPool.Put(b)
	return false
}

// sendBatch sends a batch and gives each command its answer.
func (s *sender) sendBatch(ctx context.Context, q *slotQueue, b *batch) {
	if len(b.commands) == 1 && s.sendAlone(ctx, q, b) {
		return
	}
	b.fast, b.full = b.fast[:0], b.full[:0]
	for _, cmd := range b.commands {
		if cmd.code == "r" {
			b.fast = append(b.fast, cmd)
		}
	}
	releases := len(b.fast)
	for _, cmd := range b.commands {
		switch cmd.code {
		case "r":
		case "a":
			b.fast = append(b.fast, cmd)
		default:
			b.full = append(b.full, cmd)
		}
	}
	sent := driver.Now()
	b.keys, b.args = b.keys[:0], b.args[:0]
	var calls [2]Call
	n := 0
	if len(b.fast) > 0 {
		calls[0], n = s.fastPathCall(q, b, releases, sent), 1
	}
	if len(b.full) > 0 {
		calls[n] = s.fullCall(q, b, sent)
		n++
	}
	replies, unsaved := s.eval(ctx, b.commands, calls[:n]...)
	s.lastCallFailed.Store(replies[0].Err != nil)
	if len(b.fast) > 0 {
		s.saveServerCheck(q, &replies[0], len(b.fast), sent)
		s.deliverOrSplit(ctx, q, b.fast, replies[0], unsaved[0], sent)
	}
	if len(b.full) > 0 {
		s.saveServerCheck(q, &replies[n-1], len(b.full), sent)
		s.deliverOrSplit(ctx, q, b.full, replies[n-1], unsaved[n-1], sent)
	}
}

// deliverOrSplit gives commands their answers. If the server has refused them because our user may
// not access the keys of some of them, it sends them one by one: otherwise one name that is
// forbidden would fail all others that happen to be sent with it.
func (s *sender) deliverOrSplit(ctx context.Context, q *slotQueue, commands []*command, r Reply, unsaved error, sent driver.Instant) {
	if len(commands) == 1 || !isForbidden(r.Err) {
		deliver(commands, r, unsaved, sent)
		return
	}
	alone := s.newBatch()
	for _, cmd := range commands {
		alone.commands = append(alone.commands[:0], cmd)
		s.sendBatch(ctx, q, alone)
	}
	alone.commands = alone.commands[:0]
	s.batchPool.Put(alone)
}

// isForbidden reports whether the server has refused a request because of our user's rights. It
// has then executed nothing.
func isForbidden(err error) bool {
	var reply *ReplyError
	return errors.As(err, &reply) && strings.HasPrefix(reply.Text, "NOPERM")
}

// fastPathCall makes the call for the commands in b.fast. The first ones, as many as releases,
// are releases.
func (s *sender) fastPathCall(q *slotQueue, b *batch, releases int, now driver.Instant) Call {
	first := len(b.keys)
	b.keys = append(b.keys, s.metaKey(q.slot))
	released, taken := b.fast[:releases], b.fast[releases:]
	for _, cmd := range released {
		b.keys = append(b.keys, cmd.keys[0])
	}
	for _, cmd := range released {
		b.keys = append(b.keys, cmd.keys[1])
	}
	for _, cmd := range b.fast {
		b.keys = append(b.keys, cmd.keys[2])
	}
	var longest time.Duration
	for _, cmd := range taken {
		b.keys = append(b.keys, cmd.keys[0])
		longest = max(longest, cmd.ttl)
	}
	s.mu.Lock()
	check := q.lastCheck
	s.mu.Unlock()
	verifiedFrom, verifiedUntil := check.window(longest, now)
	if s.floor == noGrace {
		verifiedUntil = never
	}
	start := len(b.args)
	b.args = append(b.args, s.floor, s.maxTTL, verifiedFrom, verifiedUntil, strconv.Itoa(releases), strconv.Itoa(len(taken)))
	for _, cmd := range b.fast {
		b.args = append(b.args, cmd.args[:cmd.nargs]...)
	}
	b.args = append(b.args, rediskit.Millis(longest))
	return Call{Script: fastPathScript, Keys: b.keys[first:], Args: b.args[start:]}
}

// noGrace is the argument for the floor of the grace period when there is none.
const noGrace = "off"

// never is a time that the server's clock does not reach.
const never = "9000000000000000"

// fullCall makes the call for the commands in b.full.
func (s *sender) fullCall(q *slotQueue, b *batch, now driver.Instant) Call {
	first, start := len(b.keys), len(b.args)
	s.appendServer(q, b, now)
	for _, cmd := range b.full {
		b.keys = append(b.keys, cmd.keys[:]...)
		b.args = append(append(b.args, cmd.code, strconv.Itoa(cmd.nargs)), cmd.args[:cmd.nargs]...)
	}
	return Call{Script: fullScript, Keys: b.keys[first:], Args: b.args[start:]}
}

// appendServer appends to b what fullScript and freeScript are told of the server.
func (s *sender) appendServer(q *slotQueue, b *batch, now driver.Instant) {
	b.keys = append(b.keys, s.metaKey(q.slot), s.longLeasesKey(q.slot))
	s.mu.Lock()
	check := q.lastCheck
	s.mu.Unlock()
	from, until := check.window(0, now)
	b.args = append(b.args, s.floor, s.maxTTL, flag(s.durable), from, until, cmp.Or(check.ttl, "0"))
}

// saveServerCheck removes what a script says about the server from the end of its reply to n
// commands, and keeps it.
func (s *sender) saveServerCheck(q *slotQueue, r *Reply, n int, sent driver.Instant) {
	if len(r.Lines) != n+1 {
		return
	}
	check := serverCheck{checkedAt: sent}
	var serverTime, ms int64
	if _, err := fmt.Sscanf(r.Lines[n], "v %d %d %d", &serverTime, &ms, &check.token); err != nil {
		return
	}
	check.maxTTL, check.ttl = time.Duration(ms)*time.Millisecond, strconv.FormatInt(ms, 10)
	check.from = strconv.FormatInt(serverTime, 10)
	check.until = strconv.FormatInt(serverTime+serverCheckLifetime.Microseconds(), 10)
	r.Lines = r.Lines[:n]
	s.mu.Lock()
	q.lastCheck = check
	s.mu.Unlock()
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
			} else if cmd.saved && (cmd.answer == "o" || cmd.answer == "l" || strings.HasPrefix(cmd.answer, "g ")) {
				cmd.err = unsaved // l: an earlier try may have been served
			}
		}
		if cmd.awaited {
			cmd.done <- struct{}{}
		}
	}
}

// A directContext is the context of a call that is made by the caller's own goroutine. It has a
// deadline but no timer: the connection observes the deadline.
type directContext struct {
	context.Context
	at          time.Time
	cancellable bool // the call must also end soon after Context
}

func newDirectContext(ctx context.Context, cmd *command) *directContext {
	if ctx.Done() == nil || cmd.code == "r" || cmd.code == "R" {
		return &directContext{ctx, time.Now().Add(directTimeout), false}
	}
	return &directContext{ctx, time.Now().Add(batchTimeout), true}
}

func (d *directContext) Deadline() (time.Time, bool) {
	if set, ok := d.Context.Deadline(); ok && set.Before(d.at) {
		return set, true
	}
	return d.at, true
}
