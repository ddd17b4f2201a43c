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
	"github.com/sniblock/snib/internal/life"
	"github.com/sniblock/snib/internal/retry"
)

// An attempt is one call of Acquire.
type attempt struct {
	d     *Driver
	req   driver.Request
	entry entry
	hint  chan struct{} // of one: the lock may be ours now

	// Guarded by waits.mu:
	look   time.Time // when the row may have changed by itself
	before int       // how many were before it in the queue when we last looked
	woken  time.Time // when a notification last hinted it
	again  bool      // another one came too soon after that

	sent    bool         // the server may know of us
	queued  bool         // it does, and we wait
	outage  retry.Outage // in which it could not serve us
	trouble error        // why it could not the last time; nil if it answered
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
		ended := errEnded{}
		if err == nil || ctx.Err() != nil || !errors.As(err, &ended) {
			return l, err
		}
		if try == tries {
			return nil, fmt.Errorf("%w: the session ended %d times while the lock was taken: %v",
				driver.ErrUnavailable, tries, ended.error) //nolint:errorlint // it may match ErrLost
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
	if err == nil {
		return l, nil
	}
	a.undo(ctx, l, errors.Is(err, driver.ErrUnavailable))
	switch {
	case ctx.Err() == nil || errors.Is(err, driver.ErrUnavailable) && errors.Is(err, context.Cause(ctx)):
		return nil, err
	case a.trouble != nil:
		return nil, fmt.Errorf("%w; %w", a.trouble, context.Cause(ctx))
	}
	return nil, context.Cause(ctx)
}

// undo withdraws the attempt. When ctx is done that goes on in the background: if the server has just not answered, nearly
// at once.
func (a *attempt) undo(ctx context.Context, l *lease, silent bool) {
	if !a.sent {
		return
	}
	done := make(chan struct{})
	undo := func() {
		defer close(done)
		if l != nil {
			l.drop(context.WithoutCancel(ctx), false)
		}
		a.withdraw(ctx, l != nil)
	}
	if !a.d.life.Go(undo) {
		go undo()
	}
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	patience := driver.CancelTimeout * 4 / 5
	if silent {
		patience = (driver.CancelTimeout - life.Moment) / 2
	}
	select {
	case <-done:
	case <-time.After(patience):
	}
}

func (d *Driver) attempt(req driver.Request) *attempt {
	h := req.Holder
	req.Tokens = max(req.Tokens, 1)
	return &attempt{d: d, req: req, hint: make(chan struct{}, 1), entry: entry{
		Owner: req.Owner, Nonce: d.nonce(), Channel: d.channel(), Shared: req.Shared, Tell: req.Tokens > 1 || d.session != nil,
		Host: text(h.Host), PID: h.PID, Label: text(h.Label),
	}}
}

// text makes of what people wrote something that the server takes.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

func (a *attempt) acquire(ctx context.Context) (*lease, error) {
	if a.req.NoWait {
		l, _, err := a.try(ctx)
		return l, err
	}
	a.d.waits.add(a) // before the first try: from then on we may be notified
	defer a.d.waits.remove(a)
	return driver.Await(ctx, a.hint, a.try)
}

// try asks the server once. While the attempt waits, it is the poller's and the listener's business to hint.
func (a *attempt) try(ctx context.Context) (*lease, time.Duration, error) {
	asked := time.Now()
	l, err := a.ask(ctx)
	if l != nil || !errors.Is(err, driver.ErrUnavailable) { // what the row has granted is withdrawn if there is an error
		a.outage, a.trouble = retry.Outage{}, nil
		return l, time.Hour, err
	}
	a.trouble = err
	pause, again := a.outage.Again(asked, err)
	switch {
	case !again, ctx.Err() != nil, a.req.NoWait:
		return nil, 0, err
	case !a.queued && !errors.Is(err, driver.ErrFull): // the caller asks again
		return nil, 0, err
	}
	return nil, pause, fmt.Errorf("%w, as far as we know: %v", driver.ErrHeld, err) //nolint:errorlint // Await sleeps, and tries again
}

// ask sends the request.
func (a *attempt) ask(ctx context.Context) (*lease, error) {
	inner, cancel := life.Detached(ctx)
	defer cancel()
	if s := a.d.session; s != nil { // before anything is asked of the pool: see yield
		var err error
		if a.entry.Session, err = s.key(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.d.prepare(inner); err != nil {
		return nil, a.yield(err)
	}
	start := driver.Now() // before the request: the expiry that we report must not be late
	s, made, err := a.send(inner)
	if err != nil {
		return nil, a.yield(err)
	}
	if h := s.held(a.req); h != nil {
		a.queued = false
		l := a.lease(h, start, s)
		if made {
			a.d.made()
		}
		return l, a.secure(ctx, l)
	}
	if place, _, sleep := s.turn(a.entry.Nonce); place >= 0 {
		a.queued = true
		a.d.waits.watch(a, sleep)
	}
	return nil, s.refusal(a.req)
}

// yield gives up a session of which nobody has a use, if the pool got no connection because the server has none left, and
// returns the error: those who have one connection each and need two would wait for one another.
func (a *attempt) yield(err error) error {
	if s := a.d.session; s != nil && errors.Is(err, driver.ErrFull) && a.d.waits.none() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.link != nil {
			s.link.End(err)
		}
	}
	return err
}

// send sends the request, at first in the form that is the quickest if it is granted. made means that it has made the row.
func (a *attempt) send(ctx context.Context) (s state, made bool, err error) {
	who, err := json.Marshal(a.entry)
	if err != nil {
		return s, false, err
	}
	req := a.req
	sent := []any{req.Name, a.entry.Nonce, req.Slots, a.d.term(req), req.Tokens, string(who),
		req.Owner, req.Shared, !req.NoWait, waiterLife.Microseconds()}
	answered := false
	read := func(rows pgx.Rows) error {
		var holders, waiters string
		answered = true
		s = state{name: req.Name}
		if err := rows.Scan(&s.slots, &holders, &waiters, &s.now, &made, nil); err != nil {
			return err
		}
		return s.parse(holders, waiters)
	}
	a.sent = true
	err = a.d.query(ctx, a.d.sql.grab, sent[:6], read)
	if err != nil || answered {
		return s, made, err
	}
	sql := a.d.sql.take
	if req.NoWait || a.queued {
		sql = a.d.sql.try
	}
	return s, made, a.d.query(ctx, sql, sent, read)
}

// term is for how long a grant counts in the row, in microseconds: in a session as long as that lives.
func (d *Driver) term(req driver.Request) int64 {
	if d.session != nil {
		return (100 * 365 * 24 * time.Hour).Microseconds()
	}
	return req.TTL.Microseconds()
}

// withdraw leaves neither a hold nor a place in the queue behind. It does not depend on the context
// of Acquire. If the server does not hear of it before the driver is closed, a place in the queue
// lapses with waiterLife, and a hold with its TTL.
func (a *attempt) withdraw(ctx context.Context, granted bool) {
	if a.req.NoWait && !granted && a.trouble == nil && ctx.Err() == nil {
		return // the server said no
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), life.Withdrawal)
	defer cancel()
	err := a.d.patiently(ctx, func() error {
		return a.d.query(ctx, a.d.sql.withdraw, []any{a.req.Name, a.entry.Nonce}, nil)
	})
	if err != nil {
		a.d.tidy(a.req.Name, a.entry.Nonce)
	}
}
