package rows

import (
	"context"
	"errors"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// An Attempt is one try of Acquire to get the lock.
type Attempt struct {
	Req    driver.Request // Tokens is 1 to driver.MaxTokens
	Entry  Entry          // to be stored; the store may complete it
	Queued bool           // the store has queued the attempt

	d    *Driver
	hint chan struct{} // capacity 1: wakes the attempt, which can perhaps be granted now

	// Guarded by registry.mu:
	checkAt     time.Time // when the row may change without a notification
	ahead       int       // waiters before it in the queue at the last poll
	arrival     uint64    // the order in which the driver's attempts were queued; 0 before
	lastHint    time.Time // when a notification last woke it
	hintPending bool      // another notification came too soon after that
	pollErr     error     // why the store did not answer the last poll for its row, or nil
	silentSince time.Time // when the first poll was sent that the store has not answered since

	sent    bool             // the store may know the attempt
	pending bool             // the store may know the request of this round
	served  bool             // the store has answered: it has queued the attempt, or is full
	late    bool             // the store may still execute a request, which was given up
	outage  driverkit.Outage // the current outage of the store
	lastErr error            // why the last round failed; nil if the store answered it
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.Life.Ready(ctx); err != nil {
		return nil, err
	}
	if err := req.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := d.Life.During(ctx)
	defer cancel()
	if !d.Life.Begin() { // Close waits for the withdrawal
		return nil, driver.ErrClosed
	}
	defer d.Life.Finish()
	return d.newAttempt(req).acquire(ctx)
}

// newAttempt returns an attempt.
func (d *Driver) newAttempt(req driver.Request) *Attempt {
	req.Tokens = req.TokenBlock()
	return &Attempt{d: d, Req: req, Entry: newEntry(req, d.newNonce()), hint: make(chan struct{}, 1)}
}

// acquire runs the attempt, and withdraws it if it fails.
func (a *Attempt) acquire(ctx context.Context) (driver.Lease, error) {
	l, err := a.run(ctx)
	if err == nil && ctx.Err() == nil {
		return l, nil
	}
	a.withdraw(ctx, l, err)
	if ctx.Err() != nil {
		err = a.contextError(ctx, err)
	}
	return nil, err
}

// contextError returns the error of an attempt whose context is done. It also matches
// ErrUnavailable if the store did not answer the last request.
func (a *Attempt) contextError(ctx context.Context, err error) error {
	if !errors.Is(err, driver.ErrUnavailable) {
		err = a.lastErr
	}
	if err == nil && a.Queued {
		a.d.registry.mu.Lock()
		err = a.pollErr
		a.d.registry.mu.Unlock()
	}
	return driverkit.EndOfWait(context.Cause(ctx), err)
}

func (a *Attempt) run(ctx context.Context) (*Lease, error) {
	if a.Req.NoWait {
		l, _, err := a.runRound(ctx)
		return l, err
	}
	a.d.registry.addAttempt(a) // before the first round: from then on it may be notified
	defer a.d.registry.removeAttempt(a)
	return driver.Await(ctx, a.hint, a.runRound)
}

// runRound sends the request once. While the attempt is queued, the poller and notifications wake
// it for the next round.
func (a *Attempt) runRound(ctx context.Context) (*Lease, time.Duration, error) {
	if err := a.d.registry.outageError(a); err != nil {
		return nil, 0, err
	}
	sentAt := time.Now()
	a.pending = false
	l, err := a.d.backend.Request(ctx, a)
	if l != nil || !errors.Is(err, driver.ErrUnavailable) { // a lease with an error is withdrawn
		a.outage, a.lastErr = driverkit.Outage{}, nil
		if errors.Is(err, driver.ErrHeld) {
			a.Req.NoteWait(nil)
		}
		a.served = a.served || a.Queued || l != nil
		return l, time.Hour, err // notifications and polls wake it
	}
	full := ctx.Err() == nil && errors.Is(err, driver.ErrFull) // it has not executed the request
	a.lastErr, a.late = err, a.late || a.pending && !full
	a.served = a.served || a.Queued || full
	pause, again := a.outage.AgainWithin(a.Req.RetryLimit(), sentAt, err)
	if !again || ctx.Err() != nil || a.Req.NoWait || !a.served { // the core retries if the store has not answered
		return nil, 0, err
	}
	a.Req.NoteWait(err)
	return nil, pause, driver.ErrHeld // Await sleeps and tries again, so the attempt keeps its place
}

// withdraw removes the lease or the place in the queue that the attempt may have. The end of ctx,
// the context of Acquire, does not stop the removal: withdraw then returns within
// [driver.CancelTimeout], and the removal goes on in the background. If the store does not answer,
// the driver retries until it is closed, or a lease has lapsed. After that, a place in the queue
// lapses after [HeartbeatTimeout], and a lease after its TTL. If the store may still execute a
// request, the driver repeats the removal until [driverkit.CallTimeout] is over.
func (a *Attempt) withdraw(ctx context.Context, l *Lease, failed error) {
	refused := errors.Is(failed, driver.ErrHeld) || errors.Is(failed, driver.ErrKind) ||
		errors.Is(failed, driver.ErrInvalid)
	mayBeInRow := a.sent && !(a.Req.NoWait && l == nil && refused && !a.late)
	if !mayBeInRow {
		return // the store refused the request, or never got it
	}
	nonce, done := a.Entry.Nonce, make(chan struct{})
	lapses := !a.Queued // a lease, and not a place that may last as long as the process
	remove := a.removal(lapses)
	task := func() {
		defer close(done)
		inner, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), driverkit.CleanupTimeout, errNoAnswer)
		defer cancel()
		if l != nil {
			l.lose(nil) // nobody is told of its end
		}
		a.d.registry.recordCleanup(nonce, remove, lapses, remove(inner))
	}
	if !a.d.Life.Go(task) {
		go task()
	}
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	left := driver.CancelTimeout * 4 / 5
	isOutage := errors.Is(failed, driver.ErrUnavailable) && !errors.Is(context.Cause(ctx), driver.ErrUnavailable)
	if isOutage { // the request has used a part of CancelTimeout
		left = (driver.CancelTimeout - driverkit.CancelDelay) / 2
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// removal returns a function that removes the entry of the attempt from its row, unless that lapses
// and has lapsed. If the store may still write the entry, this must be repeated for
// [driverkit.CallTimeout].
func (a *Attempt) removal(lapses bool) func(context.Context) error {
	d, name, nonce := a.d, a.Req.Name, a.Entry.Nonce // the attempt itself may be large
	var lastDue time.Time                            // the last removal is not before this time
	if a.late {
		lastDue = time.Now().Add(driverkit.CallTimeout)
	}
	end := time.Now().Add(a.Req.TTL + driverkit.CallTimeout)
	return func(ctx context.Context) error {
		if lapses && time.Now().After(end) {
			return nil
		}
		err := d.backend.Remove(ctx, name, nonce)
		if err == nil && time.Now().Before(lastDue) {
			return errRemoveAgain
		}
		return err
	}
}

// errRemoveAgain is the result of a removal that must be repeated: a busy server may execute the
// removal first, and then the request that it got on an abandoned connection. A lease that stayed
// in the row would keep the lock for its TTL.
var errRemoveAgain = errors.New("a request that was given up may still be executed")

// MarkSent records that from now on the store may know the attempt, and the request of this round.
func (a *Attempt) MarkSent() { a.sent, a.pending = true, true }

// MarkRepeated records that the request of this round was sent again because its connection had
// failed. Whatever the store answers, it may still execute the first request.
func (a *Attempt) MarkRepeated() { a.late = true }

// Wait records that the store has queued the attempt. The row may change by itself after delay.
func (a *Attempt) Wait(delay time.Duration) {
	a.Queued = true
	a.d.registry.addWaiting(a, delay)
}

// Grant returns the lease for h, the entry with which the store has granted the request. start is
// a time of our clock before the request was sent. othersWait says whether another process waits.
func (a *Attempt) Grant(h Entry, start driver.Instant, othersWait bool) *Lease {
	a.Queued = false
	l := &Lease{d: a.d, Req: a.Req, Nonce: a.Entry.Nonce, confirmed: start,
		grant: driver.Grant{Token: h.Token, Tokens: h.Tokens, Start: start, TellsWanted: h.Tell}}
	if othersWait {
		l.NotifyWanted()
	}
	a.d.registry.addLease(l)
	return l
}

func (a *Attempt) wake() {
	select {
	case a.hint <- struct{}{}:
	default: // it is about to run a round anyway
	}
}
