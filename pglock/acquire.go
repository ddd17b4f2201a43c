package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// An attempt is one call of Acquire. If the session ends before an attempt has its advisory lock,
// Acquire makes another one, up to three in all.
type attempt struct {
	d     *Driver
	req   driver.Request
	entry entry
	hint  chan struct{} // of one: wakes the attempt, which can perhaps be granted now

	// Guarded by waiterRegistry.mu:
	checkAt     time.Time // when the row may change without a notification
	ahead       int       // how many were ahead of it in the queue at the last poll
	lastHint    time.Time // when a notification last woke it
	hintPending bool      // another notification came too soon after that
	outageErr   error     // why the poller has given the server up

	sent    bool             // the server may know the attempt
	queued  bool             // the server has queued the attempt
	served  bool             // the server has answered: it has queued the attempt, or is full
	late    bool             // the server may still execute a request, which was given up
	outage  driverkit.Outage // the current outage of the server
	lastErr error            // why the last round failed; nil if the server answered it
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
		ended := sessionEndedError{}
		if err == nil || ctx.Err() != nil || !errors.As(err, &ended) {
			return l, err
		}
		if try == tries {
			return nil, fmt.Errorf("%w: the session ended %d times while the lock was taken: %v",
				driver.ErrUnavailable, tries, ended.error) //nolint:errorlint // it may match ErrLost
		}
	}
}

// acquireOnce makes one attempt, and withdraws it if it fails.
func (d *Driver) acquireOnce(ctx context.Context, req driver.Request) (driver.Lease, error) {
	a := d.newAttempt(req)
	l, err := a.run(ctx)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the grant came too late
	}
	if err == nil {
		return l, nil
	}
	a.withdraw(ctx, l, errors.Is(err, driver.ErrUnavailable))
	switch {
	case ctx.Err() == nil || errors.Is(err, driver.ErrUnavailable) && errors.Is(err, context.Cause(ctx)):
		return nil, err
	case a.lastErr != nil:
		return nil, fmt.Errorf("%w; %w", a.lastErr, context.Cause(ctx))
	}
	return nil, context.Cause(ctx)
}

// withdraw removes what the attempt may have left in the store. If ctx is done, withdraw waits
// for a part of [driver.CancelTimeout] and then goes on in the background. The part is smaller if
// the server did not answer the last request (unanswered).
func (a *attempt) withdraw(ctx context.Context, l *lease, unanswered bool) {
	if !a.sent {
		return
	}
	done := make(chan struct{})
	task := func() {
		defer close(done)
		if l != nil {
			l.drop(context.WithoutCancel(ctx), false)
		}
		a.removeEntry(ctx, l != nil)
	}
	if !a.d.life.Go(task) {
		go task()
	}
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	timeout := driver.CancelTimeout * 4 / 5
	if unanswered {
		timeout = (driver.CancelTimeout - driverkit.CancelDelay) / 2
	}
	select {
	case <-done:
	case <-time.After(timeout):
	}
}

func (d *Driver) newAttempt(req driver.Request) *attempt {
	h := req.Holder
	req.Tokens = max(req.Tokens, 1)
	return &attempt{d: d, req: req, hint: make(chan struct{}, 1), entry: entry{
		Owner: req.Owner, Nonce: d.newNonce(), Channel: d.channel(), Shared: req.Shared, Tell: req.Tokens > 1 || d.session != nil,
		Host: sanitize(h.Host), PID: h.PID, Label: sanitize(h.Label),
	}}
}

// sanitize replaces what a text column can't store.
func sanitize(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

func (a *attempt) run(ctx context.Context) (*lease, error) {
	if a.req.NoWait {
		l, _, err := a.runRound(ctx)
		return l, err
	}
	a.d.registry.addAttempt(a) // before the first round: from then on it may be notified
	defer a.d.registry.removeAttempt(a)
	return driver.Await(ctx, a.hint, a.runRound)
}

// runRound sends the request once. While the attempt is queued, the poller and the listener wake
// it for the next round.
func (a *attempt) runRound(ctx context.Context) (*lease, time.Duration, error) {
	if err := a.d.registry.outageError(a); err != nil {
		return nil, 0, err
	}
	sentAt := time.Now()
	l, err := a.request(ctx)
	if l != nil || !errors.Is(err, driver.ErrUnavailable) { // a lease with an error is withdrawn
		a.outage, a.lastErr = driverkit.Outage{}, nil
		return l, time.Hour, err
	}
	a.lastErr, a.late = err, true
	a.served = a.served || a.queued || errors.Is(err, driver.ErrFull)
	pause, again := a.outage.Again(sentAt, err)
	if !again || ctx.Err() != nil || a.req.NoWait || !a.served { // the core retries if the server has not answered
		return nil, 0, err
	}
	return nil, pause, fmt.Errorf("%w, as far as we know: %v", driver.ErrHeld, err) //nolint:errorlint // Await sleeps, and tries again
}

// request sends the request, and takes the advisory lock if the driver has a session. A lease
// returned with an error was granted by the row, and has to be withdrawn.
func (a *attempt) request(ctx context.Context) (*lease, error) {
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if s := a.d.session; s != nil { // before a connection of the pool is used: see yieldSession
		var err error
		if a.entry.Session, err = s.key(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.d.prepare(inner); err != nil {
		return nil, a.yieldSession(err)
	}
	start := driver.Now() // before the request: the lease must not seem to start later than it does
	s, created, err := a.send(inner)
	if err != nil {
		return nil, a.yieldSession(err)
	}
	if h := s.holderFor(a.req); h != nil {
		a.queued = false
		l := a.newLease(h, start, s)
		if created {
			a.d.countNewRow()
		}
		return l, a.secure(ctx, l)
	}
	if place, _, delay := s.position(a.entry.Nonce); place >= 0 {
		a.queued = true
		a.d.registry.addWaiting(a, delay)
	}
	return nil, s.refusal(a.req)
}

// yieldSession returns err. If the pool got no connection because the server has none left, it
// first ends a session that nobody uses: processes that have one connection each and need two
// would otherwise wait for one another.
func (a *attempt) yieldSession(err error) error {
	if s := a.d.session; s != nil && errors.Is(err, driver.ErrFull) && a.d.registry.isIdle() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.link != nil {
			s.link.End(err)
		}
	}
	return err
}

// send sends the request, first as acquireFast and, if that returns nothing, as the full
// statement. created reports that the statement created the row.
func (a *attempt) send(ctx context.Context) (s state, created bool, err error) {
	encoded, err := json.Marshal(a.entry)
	if err != nil {
		return s, false, err
	}
	req := a.req
	args := []any{req.Name, a.entry.Nonce, req.Slots, a.d.rowTTL(req), req.Tokens, string(encoded),
		req.Owner, req.Shared, !req.NoWait, heartbeatTimeout.Microseconds()}
	answered := false
	scan := func(rows pgx.Rows) error {
		var holders, waiters string
		answered = true
		s = state{name: req.Name}
		if err := rows.Scan(&s.slots, &holders, &waiters, &s.now, &created, nil); err != nil {
			return err
		}
		return s.parse(holders, waiters)
	}
	a.sent = true
	err = a.d.query(ctx, a.d.sql.acquireFast, args[:6], scan)
	if err != nil || answered {
		return s, created, a.d.rowError(req.Name, err)
	}
	sql := a.d.sql.acquire
	if req.NoWait || a.queued {
		sql = a.d.sql.acquirePrechecked
	}
	return s, created, a.d.rowError(req.Name, a.d.query(ctx, sql, args, scan))
}

// rowTTL is how long a grant counts in the row, in microseconds. In a session a grant counts
// while the session lives, so rowTTL is a hundred years.
func (d *Driver) rowTTL(req driver.Request) int64 {
	if d.session != nil {
		return (100 * 365 * 24 * time.Hour).Microseconds()
	}
	return req.TTL.Microseconds()
}

// removeEntry removes the lease or the place in the queue that the attempt has in the row. It
// does not depend on the context of Acquire. If the driver is closed before the server gets the
// removal, or before it executes a late request, a place in the queue lapses after
// heartbeatTimeout, and a lease after its TTL.
func (a *attempt) removeEntry(ctx context.Context, granted bool) {
	if a.req.NoWait && !granted && a.lastErr == nil && ctx.Err() == nil {
		return // the server has refused the request
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), driverkit.CleanupTimeout)
	defer cancel()
	err := a.d.retryWhileFull(ctx, func() error {
		return a.d.query(ctx, a.d.sql.removeEntry, []any{a.req.Name, a.entry.Nonce}, nil)
	})
	if err != nil || a.late {
		a.d.removeEntryLater(a.req.Name, a.entry.Nonce)
	}
}
