package rows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// recordDelay is how old a plain lease must be before the driver writes its record. Most
	// leases have ended by then.
	recordDelay = 25 * time.Millisecond

	// RecordTimeout is how long after its grant a plain lease has its record, unless its process
	// or the store is slow. Those who inspect locks wait so long for a record.
	RecordTimeout = 4 * recordDelay
)

// A Plain has the functions of a backend whose sessions grant plain leases. A plain lease has the
// lock of its session and no entry in the row at first. Its token is the server's clock. Its
// entry, the record, follows if the lease lasts. In these sessions every request takes the
// session's lock first, so that the tokens of plain leases and of rows have one order.
type Plain struct {
	// Take tries to take the session's lock of a lease, unless the row says that somebody else
	// comes first.
	Take func(ctx context.Context, c Conn, l *Lease, look Look) (Taken, error)

	// Free releases the session's lock of a lease that is no holder in the row, and notifies the
	// first of the waiters that come after the one with the nonce after, or of all if there is no
	// such waiter. Any error ends the session.
	Free func(ctx context.Context, c Conn, l *Lease, after string) error

	// Enqueue queues the attempt in its row, unless that may not wait, and grants nothing. If the
	// owner has a holder of this session in the row, it changes that to the new request's entry.
	// Enqueue returns the row without entries that have ended. If nothing in it is before the
	// attempt, the row itself has no such entries any more.
	Enqueue func(ctx context.Context, a *Attempt) (*State, error)

	// Record writes the record of a plain lease, which then is no waiter any more. It reports
	// whether the row has the record, and whether another process waits. If repeated is true, the
	// store may have executed an earlier call: it does not write the record again if it may have
	// been removed since.
	Record func(ctx context.Context, l *Lease, record Entry, repeated bool) (found, othersWait bool, err error)

	// LockedBy describes who has the session's lock of a name, or returns "".
	LockedBy func(ctx context.Context, name string) (string, error)
}

// A Look says what in the row bars an attempt from taking the session's lock.
type Look struct {
	Holders bool // any holder does
	Queued  bool // that the attempt is no waiter does; otherwise any waiter does
}

// A Taken is the answer of [Plain.Take].
type Taken struct {
	Got    bool
	Barred bool   // the row has entries that come first, and the lock was not tried
	Now    int64  // the server's clock in microseconds, read after the lock was taken
	Last   uint64 // the row's last token
}

// isPlain reports whether a request can be granted a plain lease. The others need the row: to find
// the owner's lease again, for several tokens, for MinHold, or because the token must be durable.
func isPlain(r *driver.Request) bool {
	return r.UniqueOwner && !r.Shared && r.Slots == 0 && r.MinHold == 0 && r.Tokens <= 1 && !r.Keep &&
		r.Fencing <= driver.FencingClock
}

// errAgain means that the row has changed so that the attempt may try the session's lock again.
var errAgain = errors.New("the lock may be free")

// requestPlain is request for sessions that grant plain leases.
func (a *Attempt) requestPlain(ctx context.Context) (*Lease, time.Duration, error) {
	if err := a.d.backend.Prepare(ctx); err != nil {
		return nil, 0, a.d.YieldIfFull(err)
	}
	for tries := 1; ; tries++ {
		taken, err := a.take(ctx)
		switch {
		case err != nil:
			return nil, 0, err
		case taken.Got && a.lock.isGranted():
			return a.lock, 0, nil
		case taken.Got:
			l, err := a.requestRow(ctx)
			return l, time.Hour, err
		case tries == 2, a.Req.NoWait && !taken.Barred && a.Req.Slots == 0 && a.Req.UniqueOwner:
			return nil, a.d.lockPause(), driver.ErrHeld
		}
		if l, err := a.enqueue(ctx, taken.Barred); !errors.Is(err, errAgain) {
			return l, time.Hour, a.d.YieldIfFull(err)
		}
	}
}

// lockPause is the pause between two tries of a lock that is free in its row. Its holder is a
// foreign client, or was broken, or will write its record: only the last two notify waiters.
func (d *Driver) lockPause() time.Duration {
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	return d.opts.PollInterval * time.Duration(max(len(d.registry.waiting), 1))
}

// take tries to take the session's lock, unless the attempt has it from an earlier round.
func (a *Attempt) take(ctx context.Context) (Taken, error) {
	if a.lock != nil && a.d.session.has(a.lock) {
		return Taken{Got: true}, nil
	}
	a.lock = &Lease{Req: a.Req, Nonce: a.Entry.Nonce, d: a.d, recordLock: make(chan struct{}, 1)}
	exclusive := !a.lock.sharesLock()
	taken, err := a.d.session.take(ctx, a, Look{Holders: exclusive, Queued: a.Queued})
	if err == nil && !taken.Got {
		a.lock = nil // there is nothing to drop
	}
	return taken, err
}

// take tries to take the session's lock for an attempt. If that can have a plain lease, take
// grants it.
func (s *session) take(ctx context.Context, a *Attempt, look Look) (Taken, error) {
	l, err := s.getLink(ctx)
	if err != nil {
		return Taken{}, err
	}
	a.Entry.Session = l.conn.Key() // the session of the round's beginning may have ended
	le, record, plain, inQueue := a.lock, a.Entry, isPlain(&a.Req), a.sent
	s.mu.Lock()
	le.lockKey, le.lockRequested = s.d.backend.LockKey(le.Req.Name), true
	s.mu.Unlock()
	var taken Taken // owned by the call, as ended is, until it is answered: the call goes on without us
	ended := false
	bounded, cancel := context.WithTimeoutCause(ctx, driverkit.CallTimeout, errNoAnswer)
	defer cancel()
	_, err = l.do(bounded, func(ctx context.Context) error {
		s.mu.Lock()
		skip := le.dropped || s.isTaken(le)
		s.mu.Unlock()
		if skip {
			return errNotSent
		}
		le.grant.Start = driver.Now()
		answer, err := s.d.backend.Plain.Take(ctx, l.conn, le, look)
		if err != nil {
			ended = errors.As(err, new(driverkit.UnknownOutcomeError)) || l.conn.IsBroken(ctx, err)
			return err
		}
		if answer.Got {
			s.mu.Lock()
			s.held[le.Nonce] = le
			plain = plain && !le.dropped
			s.mu.Unlock()
		}
		if answer.Got && plain && answer.Last < uint64(answer.Now) {
			le.grantPlain(record, answer.Now, inQueue)
		}
		taken = answer
		return nil
	})
	switch {
	case err == nil:
		return taken, nil
	case bounded.Err() != nil: // the server may still give the session the lock
		s.mu.Lock()
		le.dropped = true // before the next round
		s.mu.Unlock()
		s.d.Life.Go(func() { le.drop(context.Background(), false) })
	case l.Context().Err() != nil || ended:
		err = sessionEndedError{err}
	}
	return Taken{}, err
}

// has reports whether the session has the lock for this lease, and keeps it.
func (s *session) has(le *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[le.Nonce] == le && !le.dropped
}

// grantPlain makes a plain lease of one that has got the session's lock at the server's time now.
// inQueue says that it may be among the waiters of the row. Only the link's goroutine calls
// grantPlain, so the session can't end meanwhile.
func (l *Lease) grantPlain(record Entry, now int64, inQueue bool) {
	record.Token, record.Tokens, record.Since, record.Tell = uint64(now), 1, now, true
	l.grant.Token, l.grant.Tokens, l.grant.TTL, l.grant.TellsWanted = record.Token, 1, l.d.opts.SessionTimeout, true
	l.mu.Lock()
	l.plain, l.record, l.inQueue = true, record, inQueue
	l.mu.Unlock()
	l.d.registry.addLease(l)
	l.markGranted()
}

// requestRow sends the request to the row. The attempt has the session's lock, and keeps it if the
// answer is not known.
func (a *Attempt) requestRow(ctx context.Context) (*Lease, error) {
	s, lock := a.d.session, a.lock
	l, err := a.d.backend.Request(ctx, a)
	if err == nil {
		l.grant.Start = lock.grant.Start // the server counts the silence of the session from then
		return l, s.hand(ctx, lock, l)
	}
	if !errors.Is(err, driver.ErrUnavailable) {
		a.lock = nil
		_ = s.unlock(ctx, lock, false) // a failure ends the session
	}
	return nil, err
}

// hand makes l, which the row has granted, the lease that has the session's lock of an attempt. If
// the owner had that lease already, hand releases the attempt's lock.
func (s *session) hand(ctx context.Context, lock, l *Lease) error {
	errEnded := sessionEndedError{fmt.Errorf("%w: its session ended as it was granted", driver.ErrLost)}
	link := s.current()
	if link == nil {
		return errEnded
	}
	again, ended := false, false // owned by the call until it is answered
	_, err := link.do(ctx, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if ended = s.held[lock.Nonce] != lock || l.dropped; ended { // if l was dropped, so is the lock
			return errNotSent
		}
		if again = s.held[l.Nonce] != nil && l.Nonce != lock.Nonce; !again {
			delete(s.held, lock.Nonce)
			s.held[l.Nonce], l.lockKey, l.lockRequested = l, lock.lockKey, true
			l.grantedAt = time.Now()
		}
		l.markGranted()
		return errNotSent
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return sessionEndedError{err}
	case err != nil:
		return err
	case ended:
		return errEnded
	case again:
		return s.unlock(ctx, lock, false)
	}
	return nil
}

// enqueue queues the attempt in the row, and returns driver.ErrHeld. It returns errAgain if
// nothing in the row is before the attempt, and a lease if the owner has one already. barred says
// that the row has entries. If it has none, the lock belongs to a plain lease or a foreign client:
// a semaphore waits for the record, which says that the name is a lock.
func (a *Attempt) enqueue(ctx context.Context, barred bool) (*Lease, error) {
	if a.Req.Slots > 0 && !barred {
		s, _, err := a.d.readRecorded(ctx, a.Req.Name)
		if err != nil {
			return nil, err
		}
		if s != nil && !s.Fits(a.Req) {
			return nil, s.Refusal(a.Req)
		}
	}
	start := driver.Now()
	s, err := a.d.backend.Plain.Enqueue(ctx, a)
	if err != nil {
		return nil, err
	}
	if h := s.HolderFor(a.Req); h != nil && h.Process() == a.d.ID {
		l := a.Grant(*h, start, s.OthersWait(a.d.ID))
		return l, a.secure(ctx, l)
	}
	if !s.Fits(a.Req) {
		return nil, s.Refusal(a.Req)
	}
	place, grantable, delay := s.Position(a.Entry.Nonce, a.Req.Shared)
	if place >= 0 {
		a.Wait(delay)
	}
	if grantable {
		return nil, errAgain
	}
	return nil, driver.ErrHeld
}

// startRecord has the record of a plain lease follow. It is called when Acquire returns the lease.
func (l *Lease) startRecord(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.plain && !l.recorded && !l.releasing && !l.ended {
		l.recordTimer = time.AfterFunc(delay, func() { l.d.Life.Go(l.followUp) })
	}
}

// followUp writes the record of a plain lease. If it can't, it tries again later.
func (l *Lease) followUp() {
	l.d.recordSlots <- struct{}{} // the user's pool is not for a thousand records at once
	defer func() { <-l.d.recordSlots }()
	ctx, cancel := context.WithTimeoutCause(l.d.Life.Context(), driverkit.CleanupTimeout, errNoAnswer)
	defer cancel()
	if err := l.writeRecord(ctx); err != nil {
		l.startRecord(HeartbeatInterval)
	}
}

// writeRecord writes the record of a plain lease, unless the lease has one or is being released.
// If the record was removed by force, the lease is lost.
func (l *Lease) writeRecord(ctx context.Context) error {
	if l.recordLock == nil {
		return nil // it is no plain lease
	}
	unlock, err := l.lockRecord(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	l.mu.Lock()
	skip, repeated, record := !l.plain || l.recorded || l.releasing || l.ended, l.recordUnsure, l.record
	l.recordUnsure = l.recordUnsure || !skip
	l.mu.Unlock()
	if skip {
		return nil
	}
	found, othersWait, err := l.d.backend.Plain.Record(ctx, l, record, repeated)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.recorded, l.recordUnsure, l.inQueue = true, false, false
	l.mu.Unlock()
	switch {
	case !found:
		l.MarkBroken()
	case othersWait:
		l.NotifyWanted()
	}
	return nil
}

// lockRecord waits until no record of the lease is being written.
func (l *Lease) lockRecord(ctx context.Context) (unlock func(), err error) {
	select {
	case l.recordLock <- struct{}{}:
		return func() { <-l.recordLock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, context.Cause(ctx))
	}
}

// HasRecord reports whether the row has an entry of the lease, as far as the driver knows.
func (l *Lease) HasRecord() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.plain || l.recorded
}

// AwaitRecord makes sure that a plain lease of a name has its record: it writes that of a lease of
// this driver, and waits for that of another one.
func (d *Driver) AwaitRecord(ctx context.Context, name string) error {
	if d.backend.Plain == nil {
		return nil
	}
	for _, l := range d.LeasesOf() {
		if l.Req.Name == name && !l.HasRecord() {
			return l.writeRecord(ctx)
		}
	}
	_, _, err := d.readRecorded(ctx, name)
	return err
}

// outlastTokens returns when the server's clock is past the last token of a lease that has
// several. The token of the next plain lease is that clock, and its statement may have read the
// row before this lease was written.
func (l *Lease) outlastTokens() {
	if l.d.backend.Plain != nil && l.grant.Tokens > 1 {
		time.Sleep(time.Until(l.grantedAt.Add(time.Duration(l.grant.Tokens) * time.Microsecond)))
	}
}

func (l *Lease) isGranted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted
}

// releasePlain releases a plain lease that has no record. It returns done == false if the lease
// has one. Its result does not depend on the row.
func (l *Lease) releasePlain(ctx context.Context) (done bool, err error) {
	l.mu.Lock()
	if l.recordTimer != nil {
		l.recordTimer.Stop()
	}
	plain := l.plain
	l.mu.Unlock()
	if !plain {
		return false, nil
	}
	unlock, err := l.lockRecord(ctx) // no record is being written any more, nor will be
	if err != nil {
		return true, err
	}
	defer unlock()
	if l.HasRecord() {
		return false, nil
	}
	l.d.registry.removeLease(l)
	err = l.d.session.unlock(ctx, l, true)
	if errors.Is(err, driver.ErrUnavailable) {
		return true, err // the caller may call Release again
	}
	l.mu.Lock()
	rest, unsure := l.inQueue || l.recordUnsure, l.recordUnsure
	l.ended, l.err = true, err
	l.mu.Unlock()
	if rest {
		l.removeRest(ctx, unsure)
	}
	return true, err
}

// removeRest removes what a plain lease has left in its row: the waiter that it was, or a record
// that the store may have written. If it does not get an answer, it tries again in the background.
// It is over before Release returns, so that a newcomer does not take the rest for a waiter.
func (l *Lease) removeRest(ctx context.Context, unsure bool) {
	d, name, nonce := l.d, l.Req.Name, l.Nonce
	remove := d.removal(name, nonce, unsure)
	d.registry.markRemoving(name, nonce)
	d.registry.recordCleanup(name, nonce, remove, remove(ctx))
}

// removal returns a function that removes an entry from the row of a name. unsure says that the
// store may still write the entry: the removal must then be repeated for [driverkit.CallTimeout].
func (d *Driver) removal(name, nonce string, unsure bool) func(context.Context) error {
	var lastDue time.Time // the last removal is not before this time
	if unsure {
		lastDue = time.Now().Add(driverkit.CallTimeout)
	}
	return func(ctx context.Context) error {
		err := d.backend.Remove(ctx, name, nonce)
		if err == nil && time.Now().Before(lastDue) {
			return errRemoveAgain
		}
		return err
	}
}

// readRecorded reads the row of a name. If the row has no holder although somebody has the
// session's lock, it waits for the record. If there is none after RecordTimeout, foreign describes
// who has the lock.
func (d *Driver) readRecorded(ctx context.Context, name string) (s *State, foreign string, err error) {
	for began := time.Now(); ; {
		found, err := d.backend.Read(ctx, []string{name})
		if s = found[name]; err != nil || d.backend.Plain == nil || s != nil && (s.Err != nil || len(s.Holders) > 0) {
			return s, "", err
		}
		by, err := d.backend.Plain.LockedBy(ctx, name)
		if err != nil || by == "" || time.Since(began) >= RecordTimeout {
			return s, by, err
		}
		select {
		case <-time.After(recordDelay / 2):
		case <-ctx.Done():
			return s, "", context.Cause(ctx)
		}
	}
}

// isHolder reports whether the lease is a holder in the row, as far as the driver knows. A lease
// that was broken is not.
func (l *Lease) isHolder() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.granted && !l.ended && (!l.plain || l.recorded)
}
