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
)

// An attempt is one call of Acquire.
type attempt struct {
	d     *Driver
	req   driver.Request
	entry entry
	hint  chan struct{} // of one: the lock may be ours now

	look   time.Time // when the row may have changed by itself; guarded by waits.mu
	queued uint64    // the order in which our attempts came to wait, 0 before; guarded by waits.mu

	sent   bool      // the server may know of us
	waits  bool      // it does, and we wait
	failed time.Time // since when it can't be reached; zero if it can
}

// outage is for how long a waiter puts up with a server that can't be reached.
const outage = 30 * time.Second

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
		if ended := (errEnded{}); try == tries || !errors.As(err, &ended) {
			return l, err
		}
	}
}

// acquire makes one attempt.
func (d *Driver) acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	a := d.attempt(req)
	l, err := a.acquire(ctx)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the grant came too late
	}
	switch {
	case err == nil:
		return l, nil
	case l != nil:
		l.drop()
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	a.withdraw(ctx, l != nil)
	return nil, err
}

func (d *Driver) attempt(req driver.Request) *attempt {
	h := req.Holder
	req.Tokens = max(req.Tokens, 1)
	return &attempt{d: d, req: req, hint: make(chan struct{}, 1), entry: entry{
		Owner: req.Owner, Nonce: d.nonce(), Shared: req.Shared, Tell: req.Tokens > 1, Tokens: req.Tokens,
		Host: text(h.Host), PID: h.PID, Label: text(h.Label),
	}}
}

// text makes of what people wrote something that comes back as it is.
func text(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	if a.req.NoWait {
		l, _, err := a.try(ctx)
		return l, err
	}
	a.d.waits.add(a) // before the first try: from then on we may be called
	defer a.d.waits.remove(a)
	return driver.Await(ctx, a.hint, a.try)
}

// try asks the server once. While the attempt waits, it is the business of those who poll and watch to hint.
func (a *attempt) try(ctx context.Context) (*lease, time.Duration, error) {
	l, err := a.ask(ctx)
	switch {
	case err == nil:
		return l, 0, nil
	case l != nil:
		return l, 0, err
	case !a.waits || !passing(err) || ctx.Err() != nil:
		return nil, time.Hour, err
	}
	// We wait, and the server, or the way to it, is down for the moment.
	if a.failed.IsZero() {
		a.failed = time.Now()
	}
	if time.Since(a.failed) > outage {
		return nil, 0, err
	}
	return nil, refreshEvery / 2, fmt.Errorf("%w, and the server can't be reached: %w", driver.ErrHeld, err)
}

// ask sends the request. A lease beside an error was granted, and is to be withdrawn.
func (a *attempt) ask(ctx context.Context) (*lease, error) {
	inner, cancel := life.Detached(ctx)
	defer cancel()
	if err := a.d.prepare(inner); err != nil {
		return nil, err
	}
	if s := a.d.session; s != nil {
		var err error
		if a.entry.Session, err = s.key(ctx); err != nil {
			return nil, err
		}
	}
	a.sent = true
	l, err := a.grab(inner)
	if l == nil && err == nil {
		l, err = a.decide(inner)
	}
	if l == nil || err != nil {
		return nil, err
	}
	return l, a.secure(ctx, l)
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
	a.failed, a.waits = time.Time{}, false
	return a.lease(a.entry, uint64(out.id)/2, start, out.id%2 == 1), nil
}

// decide reads the row, and takes the lease, or a place in the queue.
func (a *attempt) decide(ctx context.Context) (*lease, error) {
	req := a.req
	var h *entry // the hold that we have got
	var got state
	err := a.d.change(ctx, req.Name, func(s *state) (write bool, err error) {
		a.failed, got, h = time.Time{}, *s, nil
		if h = s.held(req); h != nil && a.d.sameSession(h, &a.entry) {
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
	e.Until, e.Tell = until, by.Tell
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

// withdraw leaves neither a hold nor a place in the queue behind. It does not depend on the context of Acquire. If the
// server does not hear of it, it is tried again for as long as the driver lives; a hold lapses with its TTL anyway.
func (a *attempt) withdraw(ctx context.Context, granted bool) {
	if !a.sent || a.req.NoWait && !granted && ctx.Err() == nil {
		return // the server said no, or was never asked
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), life.Withdrawal)
	defer cancel()
	if a.d.remove(ctx, a.req.Name, a.entry.Nonce) != nil { // the caller has an error already
		a.d.waits.owe(a)
	}
}

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
