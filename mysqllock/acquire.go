package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// request sends the request of an attempt: it decides about the row as this process knows it, and
// writes a grant or a place in the queue, unless the row has changed since.
func (d *Driver) request(ctx context.Context, a *attempt) (*lease, error) {
	a.Entry.Tokens = a.Req.Tokens
	a.Entry.TTL = a.Req.TTL.Microseconds()
	m, unlock, err := d.rowMutexes.lock(ctx, a.Req.Name) // outside the time limit of Detached
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx, leave, err := d.acquiring.admit(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	if err := d.rows.Prepare(ctx); err != nil {
		return nil, err
	}
	var last *state // as it was written, if a change was necessary
	var h *entry    // the entry that was granted
	err = d.changeLocked(ctx, a.Req.Name, m, func(s *state) (write bool, err error) {
		last = s
		h, write, err = d.decide(ctx, a, s)
		if write {
			a.MarkSent()
		}
		return write, err
	})
	if h == nil && last != nil {
		_ = d.capProcesses(ctx, last) // if this fails, the next request tries again
	}
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, driver.ErrHeld
	case !last.exists:
		d.rows.NoteNewRow()
	}
	return a.Grant(*h, last.start, last.OthersWait(d.rows.ID)), nil
}

// decide changes the state s as the attempt requests. It returns the entry that holds the lock
// then, or nil, and whether s has to be written.
func (d *Driver) decide(ctx context.Context, a *attempt, s *state) (h *entry, write bool, err error) {
	req, ttl := a.Req, a.Req.TTL.Microseconds()
	if h = s.HolderOf(a.Entry.Nonce); h != nil { // the answer to an earlier request was lost
		extend(h, s.latest, ttl)
		return h, true, nil
	}
	if !s.Fits(req) {
		return nil, false, s.Refusal(req)
	}
	s.Slots = req.Slots
	place, grantable, delay := s.Position(a.Entry)
	signaled := s.signaled == d.rows.ID
	if signaled {
		d.tellHolders(s) // before the signal is cleared: it may be to them
	}
	switch {
	case grantable:
		s.complete = place < 0 // nobody may be ahead of a newcomer
		return s.grant(a.Entry, ttl), true, nil
	case req.NoWait:
		return nil, false, driver.ErrHeld
	case place < 0:
		// A waiter must be alive when it is queued.
		if err := d.processes.ensureHeartbeat(ctx, d); err != nil {
			return nil, false, err
		}
		s.addWaiter(a.Entry)
		write = true
	default:
		write = signaled && !s.recalled && d.clearSignal(s)
	}
	a.Wait(delay)
	return nil, write, nil
}

// extend lets a hold last for a TTL from now, at least.
func extend(e *entry, now, ttl int64) {
	e.Until, e.TTL = max(e.Until, now+ttl), max(e.TTL, ttl)
}

// grant makes a holder of a waiter or a newcomer.
func (s *state) grant(e entry, ttl int64) *entry {
	s.remove(e.Nonce)
	// Since is not Now, which may be before the grant's start: MinHold counts from there.
	e.Token, e.Since, e.Until = s.nextTokens(e.Tokens), s.latest, s.latest+ttl
	s.Holders = append(s.Holders, e)
	s.signaled = "" // it was to this process
	s.signalFirst()
	return &s.Holders[len(s.Holders)-1]
}

// nextTokens issues n tokens, and returns the first.
func (s *state) nextTokens(n int) uint64 {
	first := driver.NextToken(s.token, time.UnixMicro(s.Now))
	s.token = first + uint64(n) - 1
	return first
}

// addWaiter adds a newcomer at the end of the queue, and signals the first waiter if that can be
// granted, or else a holder in another process that asked for that. If dead waiters were removed,
// the row is written whole, without them. After a failover, a server that had not got the last
// changes has waiters of live processes that wait no more: only these processes remove them.
func (s *state) addWaiter(e entry) {
	e.Since = s.Now
	if s.reaped {
		s.Waiters = append(s.Waiters, e)
	} else {
		s.newcomer = &e
	}
	s.signalFirst()
	for _, h := range s.Holders {
		if s.signaled == "" && h.Tell && h.Process() != e.Process() {
			s.signaled = h.Process()
		}
	}
}

// remove removes what an attempt has left, if there is anything: a waiter or a holder.
func (s *state) remove(nonce string) {
	isIt := func(e entry) bool { return e.Nonce == nonce }
	s.Holders, s.Waiters = slices.DeleteFunc(s.Holders, isIt), slices.DeleteFunc(s.Waiters, isIt)
}

// tellHolders tells this driver's holders that others wait, if they do.
func (d *Driver) tellHolders(s *state) {
	if !s.OthersWait(d.rows.ID) {
		return
	}
	for _, l := range d.leasesOf(s.Name) {
		l.NotifyWanted()
	}
}

// clearSignal replaces a signal to this driver in a row as it is in the table, and reports whether
// the signal has changed.
func (d *Driver) clearSignal(s *state) bool {
	if s.signaled != d.rows.ID {
		return false
	}
	s.signaled = ""
	s.signalFirst()
	return s.signaled != d.rows.ID
}

// removeEntry removes what an attempt has left in a row: a waiter, or a lease that was never
// returned to a caller. It writes the row also if it finds nothing: a request of the attempt that
// the server executes later then finds another version of the row, and changes nothing.
func (d *Driver) removeEntry(ctx context.Context, name, nonce string) error {
	ctx, leave, err := d.releasing.admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return d.change(ctx, name, func(s *state) (bool, error) {
		s.remove(nonce)
		s.signalFirst()
		s.complete = true // the entry is not among waiters that were added since
		return true, nil
	})
}
