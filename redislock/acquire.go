package redislock

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// presence is how often a waiter asks again at the least. tradeScript forgets who is silent for three times as long.
	presence = 5 * time.Second

	// foreignPoll is how often the first in the queue looks whether a stranger has released, who will not tell.
	foreignPoll = 200 * time.Millisecond

	// outage is how long an acquisition goes on trying while the server does not answer.
	outage = time.Minute

	// hurry is how long it goes on if it must not wait.
	hurry = time.Second

	// withdrawal is how long a failed acquisition waits for its request to be taken back. That goes on behind it.
	withdrawal = driver.CancelTimeout / 2
)

// An ask is one acquisition.
type ask struct {
	d     *Driver
	req   driver.Request
	keys  [4]string
	slot  uint16
	id    uint64 // random: who does not know it can send us no hint
	tries int
	asked bool           // a try may have reached the store
	sent  driver.Instant // just before the last try that was answered

	late <-chan struct{} // tells when the call that was given up is over; nil without one

	heard driver.Instant // when it last asked because of a hint
	pause time.Duration  // for which it ignores hints from then on

	// Guarded by Driver.mu.
	woken   chan struct{} // of one; nil until it may have to wait
	wanted  bool          // another process waits for what we are about to learn that we hold
	doubted bool          // and that may have been broken
}

// mode is how the scripts know what is asked for.
func mode(req driver.Request) string {
	switch {
	case req.Slots > 0:
		return strconv.Itoa(req.Slots)
	case req.Shared:
		return "s"
	}
	return "x"
}

func (d *Driver) newAsk(req driver.Request) *ask {
	var id [8]byte
	_, _ = crand.Read(id[:]) // it never fails
	a := &ask{d: d, req: req, keys: keysOf(req.Name), slot: d.slot(req.Name), id: binary.LittleEndian.Uint64(id[:])}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks[a.id] = a
	return a
}

// listen prepares to be woken.
func (a *ask) listen() {
	a.d.mu.Lock()
	defer a.d.mu.Unlock()
	if a.woken == nil {
		a.woken = make(chan struct{}, 1)
	}
}

// dismiss makes messages for an ask be ignored.
func (d *Driver) dismiss(a *ask) {
	d.mu.Lock()
	delete(d.asks, a.id)
	d.mu.Unlock()
}

// millis is millis, remembered for the TTL that was asked for last: most are the same.
func (d *Driver) millis(ttl time.Duration) string {
	if last := d.lastTTL.Load(); last != nil && last.ttl == ttl {
		return last.text
	}
	last := &ttlText{ttl, millis(ttl)}
	d.lastTTL.Store(last)
	return last.text
}

type ttlText struct {
	ttl  time.Duration
	text string
}

// millis rounds up: the store must not end a lease before its holder does.
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := checkOwner(req.Owner); err != nil {
		return nil, err
	}
	if !d.enter() {
		return nil, driver.ErrClosed
	}
	defer d.working.Done()
	a := d.newAsk(req)
	defer d.dismiss(a)
	var sub *subscription
	if d.contended.has(req.Name) {
		a.listen()
		sub = d.listener.ready(a)
	}
	l, err := a.try(ctx, sub != nil)
	if err != nil {
		l, err = a.wait(ctx, sub, err)
	} else if sub != nil {
		d.contended.remove(req.Name)
		d.listener.leave(sub)
	}
	if err == nil {
		return l, nil
	}
	if a.asked && (a.tries > 1 || isDoubtful(err)) { // an earlier try may have left something
		a.withdraw()
	}
	return nil, err
}

// names are the locks for which others were seen to contend: a request for one of them takes a place in the queue at once. They are a
// hint, which saves a round trip.
type names struct {
	mu  sync.Mutex
	set map[string]struct{}
}

// maxNames bounds the memory that they take. Past it all are forgotten.
const maxNames = 1 << 12

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil || len(n.set) >= maxNames {
		n.set = make(map[string]struct{})
	}
	n.set[name] = struct{}{}
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.set[name]
	return ok
}

func (n *names) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.set, name)
}

// isDoubtful reports whether something of a request may have stayed behind in the store.
func isDoubtful(err error) bool {
	var grace *GraceError
	return !errors.Is(err, driver.ErrHeld) && !errors.As(err, &grace) && !errors.Is(err, driver.ErrKind)
}

// blockOf is how many tokens to reserve: what was asked for, but not so many that tokens outgrow what Lua counts exactly.
func blockOf(req driver.Request) int { return min(max(req.Tokens, 1), 1<<20) }

// try asks once, in the cheapest way or, with queue, such that a place is taken if the lock is held.
func (a *ask) try(ctx context.Context, queue bool) (*lease, error) {
	a.tries++
	m, ttl, tokens := mode(a.req), a.d.millis(a.req.TTL), strconv.Itoa(blockOf(a.req))
	request := a.describe(m, ttl)
	o := a.d.sender.order()
	defer a.d.sender.recycle(o)
	o.keys, o.ttl = &a.keys, a.req.TTL
	if !queue && m == "x" && !a.d.isLong(a.req.TTL) {
		o.code, o.n, o.args = "a", 4, [6]string{a.req.Owner, ttl, tokens, request}
		if err := a.send(ctx, o); err != nil {
			return nil, err
		}
		if o.answer != "?" {
			return a.read(ctx, o.answer)
		}
		if !a.req.NoWait {
			return nil, &HeldError{} // to be asked for with a place in the queue
		}
	}
	waits := "0"
	if queue {
		waits = "1"
	}
	o.code, o.n, o.args = "A", 6, [6]string{a.req.Owner, m, ttl, tokens, waits, request}
	if err := a.send(ctx, o); err != nil {
		return nil, err
	}
	return a.read(ctx, o.answer)
}

func (a *ask) send(ctx context.Context, o *order) error {
	began := time.Now()
	err := a.d.sender.do(ctx, a.slot, o)
	if err == nil {
		a.sent = o.sent
	}
	a.asked = a.asked || !o.unsent
	if o.lost {
		a.late = o.done
		if waited := time.Since(began); waited > patience {
			return &silentError{waited, err}
		}
	}
	return err
}

// read makes a lease or an error of an answer of the script.
func (a *ask) read(ctx context.Context, answer string) (*lease, error) {
	word, rest, _ := strings.Cut(answer, " ")
	switch word {
	case "g":
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return a.granted(rest)
	case "q":
		left, place, _ := strings.Cut(rest, " ")
		return nil, &queued{left: parseMillis(left), place: place}
	case "h":
		return nil, &HeldError{Left: parseMillis(rest)}
	case "e":
		return nil, &GraceError{Left: parseMillis(rest)}
	case "k":
		return nil, fmt.Errorf("%w: it is in use as %s, not as %s", driver.ErrKind, rest, kindName(a.req))
	}
	return nil, answeredf("the script answered %q", answer)
}

func kindName(req driver.Request) string {
	if req.Slots > 0 {
		return fmt.Sprintf("a semaphore of %d", req.Slots)
	}
	return "a lock"
}

func parseMillis(s string) time.Duration {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(min(ms, maxTTL.Milliseconds())) * time.Millisecond
}

// queued is the answer to a request that has a place in the queue.
type queued struct {
	left  time.Duration
	place string // "0", "1" for the first, "2" for the first behind a stranger
}

func (*queued) Error() string { return "queued" }

// sleep is how long a waiter may wait for a message. Hints only shorten it.
func (q *queued) sleep() time.Duration {
	after := max(q.left, 0) + time.Millisecond
	switch {
	case q.place == "2" && (q.left < 0 || after > foreignPoll):
		after = foreignPoll - rand.N(foreignPoll/4)
	case q.left < 0: // without an end, or with one that grace puts off
		after = presence
	case q.place == "0": // if the first does not take what has ended, somebody must
		after += 50*time.Millisecond + rand.N(50*time.Millisecond)
	}
	return min(after, presence)
}

// wait asks until the lock is granted, ctx is done, or there is no hope. err is the answer to the first try.
func (a *ask) wait(ctx context.Context, sub *subscription, err error) (*lease, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.d.life, func() { cancel(driver.ErrClosed) })()
	defer func() { a.d.listener.leave(sub) }()
	a.listen()
	var trouble backoff
	last := err // what was known of the store before the wait ended
	for {
		if ctx.Err() != nil {
			return nil, ended(ctx, err, last)
		}
		last = err
		pause, hope := a.rest(err, &trouble)
		if !hope {
			return nil, unavailable(err)
		}
		if sub == nil && pause == 0 && !a.req.NoWait {
			if sub, err = a.d.listener.join(ctx, a); err != nil {
				continue
			}
		}
		a.sleep(ctx, pause)
		if ctx.Err() == nil {
			var l *lease
			if l, err = a.try(ctx, sub != nil); err == nil {
				return l, nil
			}
		}
	}
}

// ended is the error of an acquisition whose context is done. If the store was out of reach, or granted nothing to anybody, it says so as
// well. Err is that of the last try, which may only say that the context is done; then last is that of the one before.
func ended(ctx context.Context, err, last error) error {
	cause := context.Cause(ctx)
	var silent *silentError
	if errors.As(err, &silent) {
		return err
	}
	if err == cause { //nolint:errorlint // it says nothing else
		err = last
	}
	if err = unavailable(err); errors.Is(err, driver.ErrUnavailable) {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return cause
}

// A silentError is that of a call which was not answered for long before the caller's context was done.
type silentError struct {
	waited time.Duration
	cause  error
}

func (e *silentError) Error() string {
	return fmt.Sprintf("%v: no answer within %v: %v", driver.ErrUnavailable, e.waited.Round(time.Millisecond), e.cause)
}

func (e *silentError) Unwrap() []error { return []error{driver.ErrUnavailable, e.cause} }

// rest returns how long to sleep after a try that ended with err, and whether to try again at all.
func (a *ask) rest(err error, trouble *backoff) (pause time.Duration, hope bool) {
	var place *queued
	var grace *GraceError
	switch {
	case errors.As(err, &place):
		*trouble = backoff{}
		a.d.contended.add(a.req.Name)
		return place.sleep(), true
	case errors.As(err, &grace):
		*trouble = backoff{}
		return min(grace.Left+time.Millisecond, presence), !a.req.NoWait
	case errors.Is(err, driver.ErrHeld):
		*trouble = backoff{}
		return 0, !a.req.NoWait
	case errors.Is(err, driver.ErrKind) || !isTransient(err):
		return 0, false
	}
	return trouble.next(a.req.NoWait)
}

// sleep waits until it is time to ask again, or for a hint. After each hint it waits a little, and longer each time: most waits end with
// the first one, and whoever sends many must not make us ask as often.
func (a *ask) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		a.pause = 0
		return
	case <-ctx.Done():
		return
	case <-a.woken:
	}
	timer.Reset(max(0, a.heard.Add(a.pause).Left(driver.Now())))
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	a.heard, a.pause = driver.Now(), min(max(2*a.pause, minHintPause), maxHintPause)
}

// backoff spaces the tries while the server does not answer.
type backoff struct {
	since time.Time
	pause time.Duration
}

// next returns the pause before the next try, and whether there should be one.
func (b *backoff) next(noWait bool) (time.Duration, bool) {
	if b.pause == 0 {
		b.since, b.pause = time.Now(), time.Millisecond
		return 1, true // at once, nearly: a connection that died is soon replaced
	}
	limit := outage
	if noWait {
		limit = hurry
	}
	b.pause = min(2*b.pause, 500*time.Millisecond)
	return b.pause/2 + rand.N(b.pause/2), time.Since(b.since) < limit
}

// withdraw takes back what was asked for, granted in the meantime or not. It waits for the answer only for a while: what a dead store
// keeps from being withdrawn lapses within one TTL.
func (a *ask) withdraw() {
	d := a.d
	ctx, cancel := context.WithTimeout(context.Background(), min(max(a.req.TTL, time.Second), outage))
	done := make(chan struct{})
	d.working.Add(1) // our caller has entered, so Close waits for more than nothing
	go func() {
		defer d.working.Done()
		defer close(done)
		defer cancel()
		if a.late != nil { // or what is to be withdrawn could come after its withdrawal
			select {
			case <-a.late:
			case <-ctx.Done():
			}
		}
		_, _ = d.insist(ctx, a.slot, &order{keys: &a.keys, code: "w", n: 3, args: [6]string{
			a.req.Owner, d.listener.process, strconv.FormatUint(a.id, 10),
		}})
	}()
	timer := time.NewTimer(withdrawal)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// insist sends an order until it is answered. An answer that there is no such hold is "!" if an earlier try went unanswered, which may
// have ended it.
func (d *Driver) insist(ctx context.Context, slot uint16, o *order) (answer string, err error) {
	var trouble backoff
	for {
		if answer, err = d.sender.send(ctx, slot, o); err == nil {
			if o.doubt && answer == "l" {
				return "!", nil
			}
			return answer, nil
		}
		var answered *ReplyError
		o.doubt = o.doubt || !errors.As(err, &answered)
		pause, hope := trouble.next(false)
		if !isTransient(err) || !hope {
			return "", err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", err
		}
	}
}
