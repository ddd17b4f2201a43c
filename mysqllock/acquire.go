package mysqllock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
	"github.com/sniblock/snib/internal/retry"
)

// An attempt is one call of Acquire.
type attempt struct {
	d     *Driver
	req   driver.Request
	entry entry
	hint  chan struct{} // of one: the lock may be ours now

	look   time.Time // when the row may have changed by itself; guarded by waits.mu
	before int       // how many were before it in the queue when we last looked; guarded by waits.mu
	queued uint64    // the order in which our attempts came to wait, 0 before; guarded by waits.mu

	sent        bool         // the server may know of us
	waits       bool         // it does, and we wait
	interrupted bool         // a call for us was cut off, because the caller has no more time
	outage      retry.Outage // in which the server could not serve us
	down        error        // why not; nil if there is none
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return nil, err
	}
	if err := d.check(req); err != nil {
		return nil, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	const tries = 3
	for try := 1; ; try++ {
		l, err := d.acquire(ctx, req)
		if ended := (errEnded{}); ctx.Err() != nil || !errors.As(err, &ended) {
			return l, err
		}
		if try == tries {
			return nil, fmt.Errorf("%w: %v", driver.ErrUnavailable, err) //nolint:errorlint // nothing was held that could be lost
		}
	}
}

// acquire makes one attempt.
func (d *Driver) acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	a := d.attempt(req)
	l, err := a.acquire(ctx)
	if err == nil && ctx.Err() == nil {
		return l, nil
	}
	a.withdraw(ctx, l, err)
	if ctx.Err() != nil {
		err = a.endError(ctx, err)
	}
	return nil, err
}

// endError returns the error of an attempt whose context is done. It matches ErrUnavailable as
// well if the server did not answer last.
func (a *attempt) endError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if !errors.Is(err, driver.ErrUnavailable) {
		err = a.down
	}
	if err == nil && a.waits {
		err = a.d.waits.outage()
	}
	switch {
	case err == nil || errors.Is(cause, driver.ErrClosed):
		return cause
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func (d *Driver) attempt(req driver.Request) *attempt {
	h := req.Holder
	req.Tokens = max(req.Tokens, 1)
	return &attempt{d: d, req: req, hint: make(chan struct{}, 1), entry: entry{
		Owner: req.Owner, Nonce: d.nonce(), Shared: req.Shared, Tell: req.Tokens > 1, Tokens: req.Tokens,
		TTL:  req.TTL.Microseconds(),
		Host: text(h.Host), PID: h.PID, Label: text(h.Label),
	}}
}

// text makes of what people wrote something that comes back as it is.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	if a.req.NoWait {
		return a.ask(ctx)
	}
	a.d.waits.add(a) // before the first try: from then on we may be called
	defer a.d.waits.remove(a)
	return driver.Await(ctx, a.hint, a.try)
}

// try asks the server once. While the attempt waits, it is the business of those who poll and watch to hint.
func (a *attempt) try(ctx context.Context) (*lease, time.Duration, error) {
	asked := time.Now()
	l, err := a.ask(ctx)
	switch {
	case err == nil, l != nil, ctx.Err() != nil, !errors.Is(err, driver.ErrUnavailable):
		return l, time.Hour, err
	case !a.waits && !errors.Is(err, driver.ErrFull): // the caller asks again
		return nil, 0, err
	}
	pause, again := a.outage.Again(asked, err)
	if !again {
		return nil, 0, err
	}
	a.down = err
	return nil, pause, driver.ErrHeld // Await goes on, so we keep our place
}

// ask sends the request. A lease beside an error was granted, and is to be withdrawn.
func (a *attempt) ask(ctx context.Context) (*lease, error) {
	leave, err := a.d.acquiring.enter(ctx)
	if err != nil {
		return nil, err
	}
	l, err := a.request(ctx)
	leave()
	if l == nil || err != nil {
		return nil, err
	}
	return l, a.secure(ctx, l)
}

func (a *attempt) request(ctx context.Context) (*lease, error) {
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
	l, err := a.grab(inner)
	if l == nil && err == nil {
		l, err = a.decide(ctx)
	}
	return l, err
}

// detached is [life.Detached] that notes whether the context's end interrupted a call.
func (a *attempt) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := life.Detached(ctx)
	return inner, func() {
		a.interrupted = a.interrupted || inner.Err() != nil
		cancel()
	}
}

// grab takes the lock in the cases that decide how fast it is: it is free, and nobody waits, or we are the first. It returns
// neither a lease nor an error otherwise.
func (a *attempt) grab(ctx context.Context) (*lease, error) {
	if a.req.Shared || a.req.Slots > 0 {
		return nil, nil
	}
	start := driver.Now() // before the request: the expiry that we report must not be late
	out, err := a.d.exec(ctx, a.d.sql.grab, a.req.Tokens, a.d.term(a.req), a.entry.line(), []byte(a.req.Name), []byte(a.entry.Nonce))
	if err != nil || out.rows == 0 {
		return nil, err
	}
	a.outage, a.down, a.waits = retry.Outage{}, nil, false
	return a.lease(a.entry, uint64(out.id)/2, start, out.id%2 == 1), nil
}

// decide reads the row, and takes the lease, or a place in the queue.
func (a *attempt) decide(ctx context.Context) (*lease, error) {
	req := a.req
	var h *entry // the hold that we have got
	var got state
	leave, err := a.d.lanes.enter(ctx, req.Name) // however long others of this process take
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := a.detached(ctx)
	defer cancel()
	err = a.d.changeAlone(ctx, req.Name, func(s *state) (write bool, err error) {
		a.outage, a.down, got, h = retry.Outage{}, nil, *s, nil
		if h = s.held(req); h != nil && a.d.waits.removing(h.Nonce) {
			s.drop(h.Token) // it was released, but the server has not confirmed that
			h = nil
		}
		if h != nil && a.d.sameSession(h, &a.entry) {
			h.again(&a.entry, s.now+a.d.term(req))
			s.leave(a.entry.Nonce)
			s.call()
			return true, nil
		}
		if h = nil; !s.fits(req) {
			return false, s.refusal(req)
		}
		s.slots = req.Slots
		place, granted, sleep := s.turn(a.entry.Nonce, req.Shared)
		switch {
		case granted:
			h = s.grant(a.entry, a.d.term(req))
			return true, nil
		case req.NoWait:
			return false, driver.ErrHeld
		case place < 0:
			if err := a.d.waits.live(ctx, a.d); err != nil { // who waits has to be alive
				return false, err
			}
			s.wait(a.entry)
			a.waits, write = true, true
		default:
			write = s.uncall(a.d.id)
		}
		a.d.waits.watch(a, sleep)
		return write, nil
	})
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, driver.ErrHeld
	case !got.there:
		a.d.made()
	}
	a.waits = false
	return a.lease(*h, h.Token, got.start, got.strangers(a.d.id)), nil
}

// again lets the hold last that another attempt of its owner has asked for.
func (e *entry) again(by *entry, until int64) {
	if e.process() != by.process() {
		e.Nonce = by.Nonce // so that the other process can't withdraw this hold with its own attempt
	}
	e.Until, e.Tell, e.TTL = until, by.Tell, max(e.TTL, by.TTL)
	e.Host, e.PID, e.Label = by.Host, by.PID, by.Label
}

// grant makes a waiter or a newcomer a holder.
func (s *state) grant(e entry, term int64) *entry {
	s.leave(e.Nonce)
	e.Token, e.Since, e.Until = s.next(e.Tokens), s.now, s.now+term
	s.holders = append(s.holders, e)
	s.call()
	return &s.holders[len(s.holders)-1]
}

// next gives n tokens, and returns the first.
func (s *state) next(n int) uint64 {
	last := s.token
	if !s.there {
		last = uint64(s.floor)
	}
	first := driver.NextToken(last, time.UnixMicro(s.now))
	s.token = first + uint64(n) - 1
	return first
}

// wait puts a newcomer at the end of the queue, and calls the holder if it wants to know.
func (s *state) wait(e entry) {
	e.Since = s.now
	s.waiters = append(s.waiters, e)
	for _, h := range s.holders {
		if s.called == "" && h.Tell && h.process() != e.process() {
			s.called = h.process()
		}
	}
}

// leave removes a waiter, and reports whether there was one.
func (s *state) leave(nonce string) bool {
	before := len(s.waiters)
	s.waiters = slices.DeleteFunc(s.waiters, func(w entry) bool { return w.Nonce == nonce })
	return len(s.waiters) < before
}

// uncall takes back a call of the driver with this id that comes to nothing, and reports whether there was one.
func (s *state) uncall(id string) bool {
	if s.called != id {
		return false
	}
	s.call()
	return s.called != id
}

// term is for how long a grant counts in the row, in microseconds: in a session as long as that lives.
func (d *Driver) term(req driver.Request) int64 {
	if d.session != nil {
		return (100 * 365 * 24 * time.Hour).Microseconds()
	}
	return req.TTL.Microseconds()
}

// withdraw removes the hold or the place in the queue that the attempt may have. It does not
// depend on the context of Acquire. Once that is done, withdraw returns within
// [driver.CancelTimeout] and goes on in the background. If the server does not answer, the driver
// retries until it is closed; a hold lapses with its TTL anyway.
func (a *attempt) withdraw(ctx context.Context, l *lease, failed error) {
	refused := errors.Is(failed, driver.ErrHeld) || errors.Is(failed, driver.ErrKind) || errors.Is(failed, driver.ErrInvalid)
	if !a.sent || a.req.NoWait && l == nil && refused {
		return // the server refused the request, or was never asked
	}
	done := make(chan struct{})
	a.d.waits.markRemoving(a.entry.Nonce)
	task := func() {
		defer close(done)
		inner, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), life.Withdrawal, errNoAnswer)
		defer cancel()
		a.d.settle(inner, a.entry.Nonce, func(ctx context.Context) error {
			if l != nil {
				if err := l.drop(ctx); err != nil {
					return err
				}
			}
			return a.d.remove(ctx, a.req.Name, a.entry.Nonce)
		})
	}
	if !a.d.life.Go(task) { // Close does not wait for us
		task()
		return
	}
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	left := life.Moment
	if a.interrupted {
		left = (driver.CancelTimeout - life.Moment) / 3
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// errNoAnswer is the cause with which background calls end.
var errNoAnswer = fmt.Errorf("%w: it does not answer", driver.ErrUnavailable)

// remove takes what an attempt has left out of a row: a waiter, or a hold that nobody was told of.
func (d *Driver) remove(ctx context.Context, name, nonce string) error {
	return d.change(ctx, name, func(s *state) (bool, error) {
		before := len(s.holders)
		s.holders = slices.DeleteFunc(s.holders, func(h entry) bool { return h.Nonce == nonce })
		found := s.leave(nonce) || len(s.holders) < before || s.buried // it may be itself that was buried
		s.call()
		return found, nil
	})
}
