package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sniblock/snib/driver"
)

// An attempt is one call of Acquire.
type attempt struct {
	d    *Driver
	req  driver.Request
	mode int64

	ticket, liveByte int64         // of our row among the waiters, 0 if there is none
	hint             chan struct{} // gets a value when one of the watched bytes is unlocked
	watched          []int64

	outage error     // of the last round, if the store was unavailable
	failed time.Time // when the first round of the outage began
}

// An outcome is the result of one round of an attempt.
type outcome struct {
	lease            *lease
	ticket, liveByte int64 // of our row among the waiters, if this round added it
	err              error // why there is no lease
	sleep            time.Duration
	watch            []int64
	head             bool // of the queue
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	a := &attempt{d: d, req: req, mode: modeProcess, hint: make(chan struct{}, 1)}
	if req.Detached {
		a.mode = modeDetached
	}
	ctx, end := d.during(ctx)
	defer end()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !d.attempts.TryRLock() { // Close waits for the withdrawal
		return nil, driver.ErrClosed
	}
	l, err := a.wait(ctx)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the grant arrived after the cancellation
	}
	if err != nil {
		a.withdraw(l)
		return nil, err
	}
	d.attempts.RUnlock()
	return l, nil
}

func (a *attempt) wait(ctx context.Context) (*lease, error) {
	defer a.unwatch()
	if a.req.NoWait {
		l, _, err := a.try(ctx)
		return l, err
	}
	l, err := driver.Await(ctx, a.hint, a.tryInQueue)
	cause := context.Cause(ctx)
	if a.outage != nil && cause != nil && errors.Is(err, cause) && !errors.Is(cause, driver.ErrClosed) {
		err = fmt.Errorf("%w: %w", a.outage, cause)
	}
	return l, err
}

// tryInQueue is try, but a request in the queue keeps its place while the store is unavailable, for
// example because the disk is full. It fails when that has lasted for RetryLimit.
func (a *attempt) tryInQueue(ctx context.Context) (*lease, time.Duration, error) {
	began := time.Now()
	l, sleep, err := a.try(ctx)
	switch {
	case ctx.Err() != nil:
		return l, sleep, err
	case a.ticket == 0 || !errors.Is(err, driver.ErrUnavailable):
		return l, sleep, err
	case a.outage == nil:
		a.failed = began
	}
	if a.outage = err; time.Since(a.failed) >= a.req.RetryLimit() {
		return nil, 0, err
	}
	a.req.NoteWait(err)
	return nil, time.Second, driver.ErrHeld
}

// try makes one round: it takes the lease or a place in the queue, and then watches the
// bytes of the leases and waiters that block it. A byte that was unlocked in the meantime
// sends its hint at once, and the bell is heard from before the round, so no hint is missed.
func (a *attempt) try(ctx context.Context) (*lease, time.Duration, error) {
	a.unwatch()
	if !a.req.NoWait {
		a.d.bell.add(a.req.Name, a.hint)
	}
	v := new(outcome) // not shared: the writer goes on using it if we leave
	o := &op{
		durable: true,
		run:     func(t *tx) error { *v = outcome{}; return a.decide(t, v) },
		revert: func(w *writer) {
			a.remove(v.lease != nil, v.ticket, v.liveByte, func(o *op) error { return w.commit([]*op{o}) })
		},
	}
	if err := a.send(ctx, o); err != nil {
		return nil, 0, err
	}
	a.outage = nil
	if v.ticket != 0 {
		a.ticket, a.liveByte = v.ticket, v.liveByte
	}
	for _, at := range v.watch {
		a.d.side.watch(at, a.hint)
	}
	a.watched = v.watch
	switch {
	case !v.head:
		a.d.bell.remove(a.req.Name, a.hint)
	case a.d.bell.listen():
		v.sleep = 0
	}
	if errors.Is(v.err, driver.ErrHeld) {
		a.req.NoteWait(nil)
	}
	return v.lease, v.sleep, v.err
}

// send has the writer run o. A request in the queue waits for the answer for up to RetryLimit, and
// tells why: if it left while its grant is committed, it would lose its place.
func (a *attempt) send(ctx context.Context, o *op) error {
	timeout := answerTimeout
	if a.ticket != 0 {
		timeout = max(timeout, a.req.RetryLimit())
		told := make(chan struct{})
		timer := time.AfterFunc(answerTimeout, func() {
			defer close(told)
			a.req.NoteWait(a.d.noAnswer(answerTimeout))
		})
		defer func() {
			if !timer.Stop() {
				<-told // before the caller tells that there was an answer
			}
		}()
	}
	return a.d.inTime(ctx, timeout, func(ctx context.Context) error { return a.d.run(ctx, o) })
}

func (a *attempt) unwatch() {
	for _, at := range a.watched {
		a.d.side.unwatch(at, a.hint)
	}
	a.watched = nil
	a.d.bell.remove(a.req.Name, a.hint)
}

// decide is the part of try that runs within the transaction.
func (a *attempt) decide(t *tx, v *outcome) error {
	name, slots := a.req.Name, int64(a.req.Slots)
	before := int64(math.MaxInt64)
	if a.ticket != 0 {
		before = a.ticket + 1
	}
	q, err := t.load(name, before)
	if err != nil {
		return err
	}
	if a.ticket != 0 && !q.cutLast(a.ticket) { // somebody has withdrawn us: go to the end
		t.unlock(a.liveByte)
		v.err = driver.ErrHeld
		return a.enqueue(t, v)
	}
	if v.err = q.kindConflict(slots); v.err != nil {
		return nil //nolint:nilerr // an outcome, and no error of the transaction
	}
	granted, err := t.mayGrant(name, &q, slots, a.req.Shared)
	switch {
	case err != nil:
		return err
	case granted:
		return a.grant(t, v)
	}
	v.err = driver.ErrHeld
	if a.req.NoWait {
		return nil
	}
	v.sleep, v.watch = q.nextCheck(t.d.side, t.now)
	v.head = len(q.waiters) == 0
	if a.ticket != 0 {
		return t.db.exec(uncallWaiter, name, a.ticket) // we are awake, and may not take the lock yet
	}
	return a.enqueue(t, v)
}

// enqueue adds our row to the waiters.
func (a *attempt) enqueue(t *tx, v *outcome) (err error) {
	if v.liveByte, err = t.newByte(); err != nil {
		return err
	}
	if err := t.lock(v.liveByte); err != nil {
		return err
	}
	v.ticket = t.ticket()
	h := a.req.Holder
	err = t.db.exec(insertWaiter,
		a.req.Name, v.ticket, a.req.ID, a.req.Shared, a.req.Slots, v.liveByte, t.now, h.Host, h.PID, h.Label, int(h.Kind))
	return err
}

// grant adds a new lease.
func (a *attempt) grant(t *tx, v *outcome) error {
	block := a.req.TokenBlock()
	at, err := a.lockByte(t)
	if err != nil {
		return err
	}
	h, ttl, first := a.req.Holder, nanos(a.req.TTL), t.tokens(block)
	err = t.db.exec(insertLease,
		a.req.Name, first, a.req.ID, a.mode, a.req.Shared, a.req.Slots, at, t.w.process,
		t.now, nanos(a.req.MinHold), t.now+ttl, t.wall+ttl, ttl, h.Host, h.PID, h.Label, int(h.Kind))
	if err != nil {
		return err
	}
	if err := a.dequeue(t); err != nil {
		return err
	}
	v.lease = a.newLease(first, block, t.start)
	if err := t.checkOldest(); err != nil {
		return err
	}
	return t.sweep()
}

// lockByte locks a new byte for the lease. A detached lease has none, but the process is one that
// uses the file.
func (a *attempt) lockByte(t *tx) (at int64, err error) {
	if a.mode == modeDetached {
		return 0, t.lockProcess()
	}
	if at, err = t.newByte(); err != nil {
		return 0, err
	}
	t.after = append(t.after, func() {
		t.d.leases.Store(a.key(), at)
		t.w.granted = append(t.w.granted, a.key())
	})
	return at, t.lock(at)
}

func (a *attempt) key() leaseKey { return leaseKey{a.req.Name, a.req.ID} }

func (a *attempt) newLease(token int64, block int, start driver.Instant) *lease {
	return &lease{
		d: a.d, key: a.key(), ttl: a.req.TTL, durable: a.mode == modeDetached || a.req.MinHold > 0,
		grant: driver.Grant{Token: uint64(token), Tokens: block, Start: start},
	}
}

// dequeue deletes our row among the waiters.
func (a *attempt) dequeue(t *tx) error {
	if a.ticket == 0 {
		return nil
	}
	t.unlock(a.liveByte)
	return t.db.exec(deleteWaiter, a.req.Name, a.ticket)
}

// withdraw removes the attempt's lease and its place in the queue, and ends the attempt. It does
// not depend on the context of Acquire, and goes on in the background if it takes longer than
// removalWait.
func (a *attempt) withdraw(l *lease) {
	if l == nil && a.ticket == 0 {
		a.d.attempts.RUnlock()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer a.d.attempts.RUnlock()
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		a.remove(l != nil, a.ticket, a.liveByte, func(o *op) error { return a.d.run(ctx, o) })
	}()
	over := time.NewTimer(removalWait)
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	}
}

// remove removes a lease of the attempt and a place in the queue, by a transaction that send runs.
// If that fails, the rows stay: without their bytes they are dead, and a TTL ends a detached lease.
func (a *attempt) remove(leased bool, ticket, liveByte int64, send func(*op) error) {
	send(&op{durable: leased, run: func(t *tx) error { //nolint:errcheck // see above
		if leased {
			if _, err := t.withLease(a.key(), (*tx).remove); err != nil {
				return err
			}
		}
		return t.db.exec(deleteWaiter, a.req.Name, ticket)
	}})
	if leased {
		a.d.drop(a.key())
	}
	a.d.side.unlock(liveByte)
}
