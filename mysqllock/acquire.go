package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// An attempt is one call of Acquire. If the session ends before an attempt has its lock from
// GET_LOCK, Acquire makes another one, up to three in all.
type attempt struct {
	d     *Driver
	req   driver.Request
	entry entry
	hint  chan struct{} // of one: wakes the attempt, which can perhaps be granted now

	// Guarded by waiterRegistry.mu:
	checkAt time.Time // when the row may change without a signal
	ahead   int       // how many were ahead of it in the queue at the last poll
	arrival uint64    // the order in which the driver's attempts were queued; 0 before

	outageErr error // why the poller has given the server up; guarded likewise

	sent        bool             // the server may know the attempt
	queued      bool             // the server has queued the attempt
	served      bool             // the server has answered: it has queued the attempt, or is full
	interrupted bool             // a request was cut off because the caller's context was done
	outage      driverkit.Outage // the current outage of the server
	lastErr     error            // why the last round failed; nil if the server answered it
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx); err != nil {
		return nil, err
	}
	if err := d.checkRequest(req); err != nil {
		return nil, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	const tries = 3
	for try := 1; ; try++ {
		l, err := d.acquireOnce(ctx, req)
		if ended := (sessionEndedError{}); ctx.Err() != nil || !errors.As(err, &ended) {
			return l, err
		}
		if try == tries {
			return nil, fmt.Errorf("%w: %v", driver.ErrUnavailable, err) //nolint:errorlint // nothing was held that could be lost
		}
	}
}

// acquireOnce makes one attempt, and withdraws it if it fails.
func (d *Driver) acquireOnce(ctx context.Context, req driver.Request) (driver.Lease, error) {
	a := d.newAttempt(req)
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
// ErrUnavailable if the server did not answer the last request.
func (a *attempt) contextError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if !errors.Is(err, driver.ErrUnavailable) {
		err = a.lastErr
	}
	if err == nil && a.queued {
		err = a.d.registry.pollError()
	}
	switch {
	case err == nil || errors.Is(cause, driver.ErrClosed):
		return cause
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (d *Driver) newAttempt(req driver.Request) *attempt {
	h := req.Holder
	req.Tokens = max(req.Tokens, 1)
	return &attempt{d: d, req: req, hint: make(chan struct{}, 1), entry: entry{
		Owner: req.Owner, Nonce: d.newNonce(), Shared: req.Shared, Tell: req.Tokens > 1, Tokens: req.Tokens,
		TTL:  req.TTL.Microseconds(),
		Host: sanitize(h.Host), PID: h.PID, Label: sanitize(h.Label),
	}}
}

// sanitize replaces invalid UTF-8, which would not be read back unchanged.
func sanitize(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (a *attempt) run(ctx context.Context) (*lease, error) {
	if a.req.NoWait {
		return a.request(ctx)
	}
	a.d.registry.addAttempt(a) // before the first round: from then on it may be signaled
	defer a.d.registry.removeAttempt(a)
	return driver.Await(ctx, a.hint, a.runRound)
}

// runRound sends the request once. While the attempt is queued, the poller and the watcher wake
// it for the next round.
func (a *attempt) runRound(ctx context.Context) (*lease, time.Duration, error) {
	if err := a.d.registry.outageError(a); err != nil {
		return nil, 0, err
	}
	sentAt := time.Now()
	l, err := a.request(ctx)
	a.served = a.served || a.queued || errors.Is(err, driver.ErrFull)
	switch {
	case err == nil, l != nil, ctx.Err() != nil, !errors.Is(err, driver.ErrUnavailable):
		return l, time.Hour, err
	case !a.served: // the core retries
		return nil, 0, err
	}
	pause, again := a.outage.Again(sentAt, err)
	if !again {
		return nil, 0, err
	}
	a.lastErr = err
	return nil, pause, driver.ErrHeld // Await goes on, so the attempt keeps its place
}

// request sends the request, and takes the lock with GET_LOCK if the driver has a session. A
// lease returned with an error was granted by the row, and has to be withdrawn.
func (a *attempt) request(ctx context.Context) (*lease, error) {
	leave, err := a.d.acquiring.enter(ctx)
	if err != nil {
		return nil, err
	}
	l, err := a.send(ctx)
	leave()
	if l == nil || err != nil {
		return nil, err
	}
	return l, a.secure(ctx, l)
}

func (a *attempt) send(ctx context.Context) (*lease, error) {
	inner, cancel := a.detached(ctx)
	defer cancel()
	if err := a.d.prepare(inner); err != nil {
		return nil, err
	}
	if s := a.d.session; s != nil {
		var err error
		if a.entry.Session, err = s.key(inner); err != nil {
			return nil, err
		}
	}
	a.sent = true
	l, err := a.acquireFast(inner)
	if l == nil && err == nil {
		l, err = a.decide(ctx)
	}
	return l, err
}

// detached is [driverkit.Detached], and records whether the end of the context interrupted a call.
func (a *attempt) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := driverkit.Detached(ctx)
	return inner, func() {
		a.interrupted = a.interrupted || inner.Err() != nil
		cancel()
	}
}

// acquireFast is the fast path: it takes a free exclusive lock if nobody waits or this attempt is
// the first waiter. Otherwise it returns neither a lease nor an error.
func (a *attempt) acquireFast(ctx context.Context) (*lease, error) {
	if a.req.Shared || a.req.Slots > 0 {
		return nil, nil
	}
	start := driver.Now() // before the request: the lease must not seem to start later than it does
	res, err := a.d.exec(ctx, a.d.sql.acquireFast, a.req.Tokens, a.d.rowTTL(a.req), a.entry.encode(), []byte(a.req.Name), []byte(a.entry.Nonce))
	if err != nil || res.rows == 0 {
		return nil, a.d.rowError(a.req.Name, err)
	}
	a.outage, a.lastErr, a.queued = driverkit.Outage{}, nil, false
	return a.newLease(a.entry, uint64(res.id)/2, start, res.id%2 == 1), nil
}

// decide reads the row, decides, and takes the lease or a place in the queue.
func (a *attempt) decide(ctx context.Context) (*lease, error) {
	req := a.req
	var h *entry // the entry that was granted
	var snapshot state
	unlock, err := a.d.rowMutexes.lock(ctx, req.Name) // outside the time limit of detached
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := a.detached(ctx)
	defer cancel()
	err = a.d.changeLocked(ctx, req.Name, func(s *state) (write bool, err error) {
		a.outage, a.lastErr, snapshot, h = driverkit.Outage{}, nil, *s, nil
		if h = s.holderFor(req); h != nil && a.d.registry.isRemoving(h.Nonce) {
			s.removeHolder(h.Token) // it is released, but the server has not confirmed that
			h = nil
		}
		if h != nil && a.d.sameSession(h, &a.entry) {
			h.reacquire(&a.entry, s.now+a.d.rowTTL(req))
			s.removeWaiter(a.entry.Nonce)
			s.signalFirst()
			return true, nil
		}
		if h = nil; !s.fits(req) {
			return false, s.refusal(req)
		}
		s.slots = req.Slots
		place, grantable, delay := s.position(a.entry.Nonce, req.Shared)
		switch {
		case grantable:
			h = s.grant(a.entry, a.d.rowTTL(req))
			return true, nil
		case req.NoWait:
			return false, driver.ErrHeld
		case place < 0:
			// A waiter must be alive when it is queued.
			if err := a.d.registry.ensureHeartbeat(ctx, a.d); err != nil {
				return false, err
			}
			s.addWaiter(a.entry)
			a.queued, write = true, true
		default:
			write = s.clearSignal(a.d.id)
		}
		a.d.registry.addWaiting(a, delay)
		return write, nil
	})
	if h == nil {
		_ = a.d.capEnds(ctx, &snapshot) // if this fails, the next request tries again
	}
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, driver.ErrHeld
	case !snapshot.exists:
		a.d.countNewRow()
	}
	a.queued = false
	return a.newLease(*h, h.Token, snapshot.start, snapshot.othersWait(a.d.id)), nil
}

// reacquire extends the entry for a newer attempt of its owner.
func (e *entry) reacquire(newer *entry, until int64) {
	if e.process() != newer.process() {
		e.Nonce = newer.Nonce // so that the other process can't withdraw it with its own attempt
	}
	e.Until, e.Tell, e.TTL = until, newer.Tell, max(e.TTL, newer.TTL)
	e.Host, e.PID, e.Label = newer.Host, newer.PID, newer.Label
}

// grant makes a holder of a waiter or a newcomer.
func (s *state) grant(e entry, ttl int64) *entry {
	s.removeWaiter(e.Nonce)
	e.Token, e.Since, e.Until = s.nextTokens(e.Tokens), s.now, s.now+ttl
	s.holders = append(s.holders, e)
	s.signalFirst()
	return &s.holders[len(s.holders)-1]
}

// nextTokens issues n tokens, and returns the first.
func (s *state) nextTokens(n int) uint64 {
	last := s.token
	if !s.exists {
		last = uint64(s.floor)
	}
	first := driver.NextToken(last, time.UnixMicro(s.now))
	s.token = first + uint64(n) - 1
	return first
}

// addWaiter adds a newcomer at the end of the queue, and signals a holder in another process that
// asked for that.
func (s *state) addWaiter(e entry) {
	e.Since = s.now
	s.waiters = append(s.waiters, e)
	for _, h := range s.holders {
		if s.signaled == "" && h.Tell && h.process() != e.process() {
			s.signaled = h.process()
		}
	}
}

// removeWaiter removes a waiter, and reports whether there was one.
func (s *state) removeWaiter(nonce string) bool {
	before := len(s.waiters)
	s.waiters = slices.DeleteFunc(s.waiters, func(w entry) bool { return w.Nonce == nonce })
	return len(s.waiters) < before
}

// clearSignal replaces a signal to the driver with this id that has no effect, and reports
// whether the signal has changed.
func (s *state) clearSignal(id string) bool {
	if s.signaled != id {
		return false
	}
	s.signalFirst()
	return s.signaled != id
}

// rowTTL is how long a grant counts in the row, in microseconds. In a session a grant counts
// while the session lives, so rowTTL is a hundred years.
func (d *Driver) rowTTL(req driver.Request) int64 {
	if d.session != nil {
		return (100 * 365 * 24 * time.Hour).Microseconds()
	}
	return req.TTL.Microseconds()
}

// withdraw removes the lease or the place in the queue that the attempt may have. It does not
// depend on the context of Acquire. Once that is done, withdraw returns within
// [driver.CancelTimeout] and goes on in the background. If the server does not answer, the driver
// retries until it is closed; a lease lapses after its TTL in any case. If a request was
// interrupted, the driver repeats the removal until [driverkit.CallTimeout] is over.
func (a *attempt) withdraw(ctx context.Context, l *lease, failed error) {
	refused := errors.Is(failed, driver.ErrHeld) || errors.Is(failed, driver.ErrKind) || errors.Is(failed, driver.ErrInvalid)
	if !a.sent || a.req.NoWait && l == nil && refused {
		return // the server refused the request, or never got it
	}
	done := make(chan struct{})
	a.d.registry.markRemoving(a.entry.Nonce)
	var lastDue time.Time // when the last removal is due
	if a.interrupted {
		lastDue = time.Now().Add(driverkit.CallTimeout)
	}
	task := func() {
		defer close(done)
		inner, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), driverkit.CleanupTimeout, errNoAnswer)
		defer cancel()
		a.d.cleanUp(inner, a.entry.Nonce, func(ctx context.Context) error {
			if l != nil {
				if err := l.drop(ctx); err != nil {
					return err
				}
			}
			err := a.d.removeEntry(ctx, a.req.Name, a.entry.Nonce)
			if err == nil && time.Now().Before(lastDue) {
				return errRemoveAgain
			}
			return err
		})
	}
	if !a.d.life.Go(task) { // Close does not wait for the withdrawal
		task()
		return
	}
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	left := driverkit.CancelDelay
	if a.interrupted {
		left = (driver.CancelTimeout - driverkit.CancelDelay) / 3
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// errRemoveAgain is the result of a removal that must be repeated: a busy server may execute what
// it got on a connection that was given up after what it got on the next one. A lease that stayed
// in the row would keep the lock for its TTL, or in a session for ever.
var errRemoveAgain = errors.New("a request that was given up may still be executed")

// errNoAnswer is the cause of the end of background requests.
var errNoAnswer = fmt.Errorf("%w: it does not answer", driver.ErrUnavailable)

// removeEntry removes what an attempt has left in a row: a waiter, or a lease that was never
// returned to a caller.
func (d *Driver) removeEntry(ctx context.Context, name, nonce string) error {
	return d.change(ctx, name, func(s *state) (bool, error) {
		before := len(s.holders)
		s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Nonce == nonce })
		// A reaped waiter may be the one of this attempt.
		found := s.removeWaiter(nonce) || len(s.holders) < before || s.reaped
		s.signalFirst()
		return found, nil
	})
}
