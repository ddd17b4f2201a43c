package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// maxTokens is the most tokens that one lease gets. Without a bound, two requests could use up the
// tokens of a lock.
const maxTokens = 4096

// request sends the request of an attempt.
func (d *Driver) request(ctx context.Context, a *attempt) (*lease, error) {
	if err := d.prepareFor(ctx); err != nil {
		return nil, err
	}
	a.Entry.Tokens, a.Entry.TTL = min(a.Req.Tokens, maxTokens), a.Req.TTL.Microseconds()
	if !a.Req.Shared && a.Req.Slots == 0 {
		if l, err := d.take(ctx, a); l != nil || err != nil {
			return l, err
		}
	}
	leave, err := d.acquiring.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a.MarkSent()
	return d.decide(ctx, a)
}

// prepareFor is prepare for a request whose context is ctx.
func (d *Driver) prepareFor(ctx context.Context) error {
	if d.store.ready.Load() {
		return nil
	}
	leave, err := d.acquiring.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	return d.prepare(ctx)
}

// decide reads the row, decides, and takes the lease or a place in the queue.
func (d *Driver) decide(ctx context.Context, a *attempt) (*lease, error) {
	req, ttl := a.Req, d.rows.RowTTL(a.Req)
	var h *entry // the entry that was granted
	var snapshot state
	var last *state                                 // that was decided on
	unlock, err := d.rowMutexes.lock(ctx, req.Name) // outside the time limit of Detached
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	err = d.changeLocked(ctx, req.Name, func(s *state) (write bool, err error) {
		snapshot, last = *s, s
		if h = s.HolderFor(req); h != nil && slices.Contains(a.Removing(), h.Nonce) {
			s.removeHolder(h.Token) // it is released, but the server has not confirmed that
			h = nil
		}
		if h != nil && h.Session == a.Entry.Session { // entries of rows have no session
			reacquire(h, &a.Entry, s.Now+ttl)
			s.removeWaiter(a.Entry.Nonce)
			s.signalFirst()
			return true, nil
		}
		if h = nil; !s.Fits(req) {
			return false, s.Refusal(req)
		}
		s.Slots = req.Slots
		place, grantable, delay := s.Position(a.Entry.Nonce, req.Shared)
		switch {
		case grantable:
			h = s.grant(a.Entry, ttl)
			return true, nil
		case req.NoWait:
			return false, driver.ErrHeld
		case place < 0:
			// A waiter must be alive when it is queued.
			if err := d.processes.ensureHeartbeat(ctx, d); err != nil {
				return false, err
			}
			s.addWaiter(a.Entry)
			write = true
		default:
			write = s.clearSignal(d.rows.ID)
		}
		a.Wait(delay)
		return write, nil
	})
	if last != nil && last.maybeWritten {
		a.MarkRepeated()
	}
	if h == nil {
		_ = d.capEnds(ctx, &snapshot) // if this fails, the next request tries again
	}
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, driver.ErrHeld
	case !snapshot.exists:
		d.rows.CountNewRow()
	}
	return a.Grant(*h, snapshot.start, snapshot.OthersWait(d.rows.ID)), nil
}

// reacquire extends the entry for a newer attempt of its owner.
func reacquire(e, newer *entry, until int64) {
	if e.Process() != newer.Process() {
		e.Nonce = newer.Nonce // so that the other process can't withdraw it with its own attempt
	}
	e.Until, e.Tell, e.TTL = until, newer.Tell, max(e.TTL, newer.TTL)
	e.Host, e.PID, e.Label = newer.Host, newer.PID, newer.Label
}

// grant makes a holder of a waiter or a newcomer.
func (s *state) grant(e entry, ttl int64) *entry {
	s.removeWaiter(e.Nonce)
	e.Token, e.Since, e.Until = s.nextTokens(e.Tokens), s.Now, s.Now+ttl
	s.Holders = append(s.Holders, e)
	s.signalFirst()
	return &s.Holders[len(s.Holders)-1]
}

// nextTokens issues n tokens, and returns the first.
func (s *state) nextTokens(n int) uint64 {
	last := s.token
	if !s.exists {
		last = uint64(s.floor)
	}
	first := driver.NextToken(last, time.UnixMicro(s.Now))
	s.token = first + uint64(n) - 1
	return first
}

// addWaiter adds a newcomer at the end of the queue, and signals a holder in another process that
// asked for that.
func (s *state) addWaiter(e entry) {
	e.Since = s.Now
	s.Waiters = append(s.Waiters, e)
	for _, h := range s.Holders {
		if s.signaled == "" && h.Tell && h.Process() != e.Process() {
			s.signaled = h.Process()
		}
	}
}

// removeWaiter removes a waiter, and reports whether there was one.
func (s *state) removeWaiter(nonce string) bool {
	before := len(s.Waiters)
	s.Waiters = slices.DeleteFunc(s.Waiters, func(w entry) bool { return w.Nonce == nonce })
	return len(s.Waiters) < before
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

// removeEntry removes what an attempt has left in a row: a waiter, or a lease that was never
// returned to a caller.
func (d *Driver) removeEntry(ctx context.Context, name, nonce string) error {
	leave, err := d.releasing.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return d.change(ctx, name, func(s *state) (bool, error) {
		before := len(s.Holders)
		s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return h.Nonce == nonce })
		// A reaped waiter may be the one of this attempt.
		found := s.removeWaiter(nonce) || len(s.Holders) < before || s.reaped
		s.signalFirst()
		return found, nil
	})
}
