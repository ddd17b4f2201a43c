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
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/redislock/rediskit"
)

const (
	// heartbeatInterval is the longest time between two requests of a waiter. The script
	// forgets a waiter that has been silent for three times as long.
	heartbeatInterval = 5 * time.Second

	// foreignPollInterval is how often the head of the queue polls while a foreign client holds
	// the lock: such a client does not announce a release.
	foreignPollInterval = 200 * time.Millisecond

	// retryTimeout is how long an acquisition is retried while the server does not answer.
	retryTimeout = time.Minute

	// noWaitRetryTimeout is the same for an acquisition that must not wait.
	noWaitRetryTimeout = time.Second

	// cleanupTimeout is how long a failed acquisition waits until its request has been
	// withdrawn. The withdrawal itself goes on in the background.
	cleanupTimeout = driver.CancelTimeout / 2
)

// An attempt is one call of Acquire. Each request that it sends to acquire the lock is a round.
type attempt struct {
	d         *Driver
	req       driver.Request
	jsonID    string // the id of the request, as the scripts know it
	ttl       string // its TTL, likewise
	rest      string // what else the scripts know of it
	keys      [3]string
	slot      uint16
	id        uint64         // random: only those who know it can send us a hint
	maybeLeft bool           // a round may have left something in the store
	queued    bool           // the store has said that the request is in the queue, and not since that it has left
	sent      driver.Instant // just before the last round that was answered

	abandoned *command // the request that was given up; nil without one
	late      bool     // the store may still execute a request that got no answer, also after the release

	hintedAt  driver.Instant // end of the last pause after a hint
	hintPause time.Duration  // how long to pause after the next hint

	lease lease // its grant is set when it is granted; that it is wanted may be known before

	// Guarded by Driver.mu.
	woken       chan struct{} // capacity 1
	maybeBroken bool          // the hold may have been broken; noted before we learn of our grant
}

// mode returns the code by which the scripts know the requested kind of lock.
func mode(req driver.Request) string {
	switch {
	case req.Slots > 0:
		return strconv.Itoa(req.Slots)
	case req.Shared:
		return modeShared
	}
	return modeExclusive
}

func (d *Driver) newAttempt(req driver.Request) *attempt {
	var id [8]byte
	_, _ = crand.Read(id[:]) // it never fails
	keys := d.conf.namespace.keysOf(req.Name)
	a := &attempt{
		d: d, req: req, jsonID: encodeID(req.ID), ttl: rediskit.Millis(req.TTL), keys: keys, slot: d.slot(keys[0]),
		id: binary.LittleEndian.Uint64(id[:]), woken: make(chan struct{}, 1),
	}
	a.rest, a.lease.attempt = a.encode(), a
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts[a.id] = a
	return a
}

// removeAttempt makes the driver ignore later messages for a.
func (d *Driver) removeAttempt(a *attempt) {
	d.mu.Lock()
	delete(d.attempts, a.id)
	d.mu.Unlock()
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := rediskit.CheckID(req.ID); err != nil {
		return nil, err
	}
	if !d.life.Begin() {
		return nil, driver.ErrClosed
	}
	defer d.life.Finish()
	a := d.newAttempt(req)
	defer d.removeAttempt(a)
	sub := d.listener.joinIfConnected(a)
	l, err := a.acquireOnce(ctx, sub != nil)
	if err != nil {
		l, err = a.wait(ctx, sub, err)
	} else {
		d.listener.leave(sub)
	}
	if err == nil {
		return l, nil
	}
	if a.maybeLeft {
		a.withdraw()
	}
	return nil, err
}

// acquireOnce runs one round. With queue set, the request enters the queue if the lock is held.
// Once it is there, the rounds are heartbeats: one that the network delivers when all is over
// takes neither the lock nor a place.
func (a *attempt) acquireOnce(ctx context.Context, queue bool) (*lease, error) {
	waits := "0"
	switch {
	case a.queued:
		waits = "2"
	case queue:
		waits = "1"
	}
	cmd := newCommand(&a.keys, codeAcquire, a.jsonID, mode(a.req), a.ttl,
		strconv.Itoa(a.req.TokenBlock()), waits, a.rest)
	cmd.saved = true
	if err := a.send(ctx, &cmd); err != nil {
		return nil, err
	}
	return a.parseAnswer(ctx, cmd.answer)
}

func (a *attempt) send(ctx context.Context, cmd *command) error {
	start := time.Now()
	err := a.d.sender.send(ctx, a.slot, cmd)
	if err == nil {
		a.sent = cmd.sent
	}
	a.maybeLeft = a.maybeLeft || err != nil && !cmd.unsent && !rediskit.IsDialError(err)
	a.late = a.late || !cmd.unsent && !cmd.abandoned && mayBeServed(err)
	if cmd.abandoned {
		a.abandoned = cmd
	}
	if waited := time.Since(start); err != nil && err == context.Cause(ctx) && !cmd.unsent && waited > unansweredTimeout { //nolint:errorlint // it says nothing else
		return fmt.Errorf("%w: no answer within %v: %w", driver.ErrUnavailable, waited.Round(time.Millisecond), err)
	}
	return err
}

// parseAnswer turns an answer of the script into a lease or an error. It sets maybeLeft by the
// answer itself: the error of a request without an answer may look the same, because a context
// may end with any cause, also with the ErrHeld of another lock.
func (a *attempt) parseAnswer(ctx context.Context, answer string) (*lease, error) {
	word, rest, _ := strings.Cut(answer, " ")
	isRefused := word == answerHeld || word == answerGrace || word == answerKind || word == answerNotQueued
	a.maybeLeft = a.maybeLeft || !isRefused
	switch word {
	case answerGranted:
		if err := a.d.life.Ready(ctx); err != nil { // then the request is withdrawn
			return nil, err
		}
		return a.newLease(rest)
	case answerQueued:
		a.queued = true
		left, place, _ := strings.Cut(rest, " ")
		return nil, &queuedError{left: parseMillis(left), place: place}
	case answerNotQueued: // it was silent for too long, or the server has lost its memory: enter the queue again
		a.queued = false
		return nil, &queuedError{}
	case answerHeld:
		return nil, &HeldError{Left: parseMillis(rest)}
	case answerGrace:
		return nil, &GraceError{Left: parseMillis(rest)}
	case answerKind:
		return nil, fmt.Errorf("%w: it is in use as %s", driver.ErrKind, rest)
	}
	return nil, badAnswerf("the script answered %q", answer)
}

func parseMillis(s string) time.Duration {
	ms, err := strconv.ParseFloat(s, 64) // Lua writes 9e+15
	if err != nil {
		return 0
	}
	return fromMillis(ms)
}

// fromMillis returns a time in milliseconds, and at most maxTTL: anybody who may write to the
// store can set any expiry.
func fromMillis(ms float64) time.Duration {
	return time.Duration(min(ms, float64(maxTTL.Milliseconds()))) * time.Millisecond
}

// A queuedError is the answer to a request that has a place in the queue.
type queuedError struct {
	left  time.Duration
	place string // "1" at the head of the queue, "2" there behind a foreign client, else "0"
}

func (*queuedError) Error() string { return "queued" }

// maxSleep returns how long a waiter may sleep until it sends again. Hints only shorten that.
func (q *queuedError) maxSleep() time.Duration {
	after := max(q.left, 0) + time.Millisecond
	switch {
	case q.place == "2" && (q.left < 0 || after > foreignPollInterval):
		after = foreignPollInterval - rand.N(foreignPollInterval/4)
	case q.left < 0: // without an end, or with one that the grace period postpones
		after = heartbeatInterval
	case q.place == "0": // if the head of the queue does not take an expired lock, we must
		after += 50*time.Millisecond + rand.N(50*time.Millisecond)
	}
	return min(after, heartbeatInterval)
}

// wait sends requests until the lock is granted, ctx is done, or retrying is pointless. Err is
// the error of the first round.
func (a *attempt) wait(ctx context.Context, sub *subscription, err error) (*lease, error) {
	ctx, cancel := a.d.life.During(ctx)
	defer cancel()
	defer func() { a.d.listener.leave(sub) }()
	var retries rediskit.Backoff
	last := err // the state of the store before the wait ended
	for {
		if ctx.Err() != nil {
			return nil, waitError(ctx, err, last)
		}
		last = err
		pause, retry := a.nextPause(err, &retries)
		if !retry {
			return nil, asUnavailable(err)
		}
		if sub == nil && pause == 0 && !a.req.NoWait {
			if sub, err = a.d.listener.join(ctx, a); err != nil {
				continue
			}
		}
		a.sleep(ctx, pause)
		if ctx.Err() == nil {
			var l *lease
			if l, err = a.acquireOnce(ctx, sub != nil); err == nil {
				return l, nil
			}
		}
	}
}

// waitError returns the error of an acquisition whose context is done. The argument err is that of
// the last round. If it says only that the context is done, last counts, that of the round before.
func waitError(ctx context.Context, err, last error) error {
	cause := context.Cause(ctx)
	if err == cause { //nolint:errorlint // it says nothing else
		err = last
	}
	return driverkit.EndOfWait(cause, asUnavailable(err))
}

// nextPause returns how long to sleep after a round that ended with err, and whether to retry
// at all.
func (a *attempt) nextPause(err error, retries *rediskit.Backoff) (pause time.Duration, retry bool) {
	var queued *queuedError
	var grace *GraceError
	switch {
	case errors.As(err, &queued):
		*retries = rediskit.Backoff{}
		a.req.NoteWait(nil)
		return queued.maxSleep(), true
	case errors.As(err, &grace):
		*retries = rediskit.Backoff{}
		a.req.NoteWait(err)
		return min(grace.Left+time.Millisecond, heartbeatInterval), !a.req.NoWait
	case errors.Is(err, driver.ErrHeld):
		*retries = rediskit.Backoff{}
		a.req.NoteWait(nil)
		return 0, !a.req.NoWait
	case errors.Is(err, driver.ErrKind) || !isTransient(err):
		return 0, false
	}
	a.req.NoteWait(asUnavailable(err))
	if a.req.NoWait {
		return retries.Next(noWaitRetryTimeout)
	}
	return retries.Next(a.req.RetryLimit())
}

// sleep waits for d, or until a hint arrives. After a hint it waits a little more, and longer
// after each one: the first hint ends most waits, and a flood of hints must not cause as many
// requests.
func (a *attempt) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
		a.hintPause = 0
		return
	case <-ctx.Done():
		return
	case <-a.woken:
	}
	if left := a.hintedAt.Add(a.hintPause).Left(driver.Now()); left > 0 {
		select {
		case <-time.After(left):
		case <-ctx.Done():
		}
	}
	a.hintedAt, a.hintPause = driver.Now(), min(max(2*a.hintPause, minHintPause), maxHintPause)
}

// mayBeServed reports whether err, the error of a request, leaves open whether the server has
// executed the request, in part or in whole, or will do so.
func mayBeServed(err error) bool {
	if err == nil {
		return false
	}
	var reply *ReplyError
	if errors.As(err, &reply) {
		return transientCode(reply.Text) == nonLocalKey
	}
	return !rediskit.IsDialError(err)
}

// withdraw removes from the store whatever the attempt has left there: a place in the queue, or
// a grant. It waits no longer than cleanupTimeout for the answer. In a dead
// store it expires within one TTL.
func (a *attempt) withdraw() {
	d := a.d
	ctx, cancel := context.WithTimeout(context.Background(), min(max(a.req.TTL, time.Second), retryTimeout))
	done := make(chan struct{})
	d.withdrawals.Go(func() {
		if a.abandoned != nil { // otherwise the withdrawal could overtake the request
			select {
			case <-a.abandoned.done:
				a.late = a.late || mayBeServed(a.abandoned.err)
			case <-ctx.Done():
				a.late = true
			}
		}
		a.sendWithdrawal(ctx)
		cancel()
		close(done)
		if a.late {
			go a.withdrawAgain()
		}
	})
	select {
	case <-done:
	case <-time.After(cleanupTimeout):
	}
}

// sendWithdrawal asks the store to forget the attempt.
func (a *attempt) sendWithdrawal(ctx context.Context) {
	_ = a.d.sendRepeatedly(ctx, a.slot, newCommand(&a.keys, codeWithdraw, a.jsonID, a.rest))
}

// withdrawAgain repeats the withdrawal for [driver.AnswerTimeout]. The network, or a busy server,
// may hold back what was sent on a connection that is lost by now, and execute it after the
// withdrawal, which was sent on another one.
func (a *attempt) withdrawAgain() {
	const pause = time.Second
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < driver.AnswerTimeout; {
		select {
		case <-ticker.C:
		case <-a.d.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(a.d.life.Context(), pause)
		a.sendWithdrawal(ctx)
		cancel()
	}
}

// sendUntilAnswered is sendRepeatedly for a driver that is open.
func (d *Driver) sendUntilAnswered(ctx context.Context, slot uint16, cmd command) error {
	if d.life.Over() {
		return driver.ErrClosed
	}
	return d.sendRepeatedly(ctx, slot, cmd)
}

// sendRepeatedly sends a command until the server answers it, ctx is done, or retryTimeout is over.
// It returns [driver.ErrLost] if there is no such hold, and no earlier try of this command may have
// ended it, and [driver.ErrKind] if another library keeps the lock in a hash. A transient error
// matches [driver.ErrUnavailable].
func (d *Driver) sendRepeatedly(ctx context.Context, slot uint16, original command) error {
	var retries rediskit.Backoff
	maybeServed := false
	for {
		cmd := original // an earlier one may still be in flight
		err := d.sender.send(ctx, slot, &cmd)
		switch {
		case err == nil && cmd.answer == answerNoHold && !maybeServed:
			return driver.ErrLost
		case err == nil && strings.HasPrefix(cmd.answer, answerKind):
			return fmt.Errorf("%w: it is in use as %s", driver.ErrKind, cmd.answer[len(answerKind+" "):])
		case err == nil:
			return nil
		}
		maybeServed = maybeServed || original.code != codeSetHolder && mayBeServed(err)
		pause, retry := retries.Next(retryTimeout)
		if !isTransient(err) || !retry {
			return asUnavailable(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return asUnavailable(err)
		}
	}
}
