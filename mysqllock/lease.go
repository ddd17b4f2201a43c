package mysqllock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A lease is an entry among the holders of a row, as far as the driver knows.
type lease struct {
	d     *Driver
	req   driver.Request
	nonce string // of the entry
	grant driver.Grant

	wantedOnce sync.Once
	wantedCh   chan struct{} // Grant.Wanted; nil if the lease does not report waiters

	dropped bool // the session must not keep the lock; guarded by session.mu

	mu    sync.Mutex
	ended bool // nothing is left to release
	err   error
}

// newLease returns the lease of the entry h, which the request was granted.
func (a *attempt) newLease(h entry, token uint64, start driver.Instant, othersWait bool) *lease {
	l := &lease{d: a.d, req: a.req, nonce: h.Nonce, grant: driver.Grant{Token: token, Tokens: h.Tokens, Start: start}}
	if a.d.session != nil {
		l.grant.TTL = a.d.conf.sessionTimeout
	}
	if h.Tell {
		l.wantedCh = make(chan struct{})
		l.grant.Wanted = l.wantedCh
		a.d.registry.addLease(l)
		if othersWait {
			l.notifyWanted()
		}
	}
	return l
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// notifyWanted tells the holder that another process waits.
func (l *lease) notifyWanted() {
	if l.wantedCh != nil {
		l.wantedOnce.Do(func() { close(l.wantedCh) })
	}
}

// drop removes the lease from the driver, and its lock from the session. It fails if the session
// may still have the lock.
func (l *lease) drop(ctx context.Context) error {
	l.d.registry.removeLease(l)
	if s := l.d.session; s != nil {
		return s.unlock(ctx, l)
	}
	return nil
}

// lose ends the lease because the store or the session has ended it. It calls OnLost unless why
// is nil.
func (l *lease) lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended, l.err = true, driver.ErrLost
	if l.req.OnLost != nil && why != nil {
		l.req.OnLost(why)
	}
}

// hasEnded reports whether the lease has ended, as far as the driver knows.
func (l *lease) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// isExclusive reports whether the row stores the lease in the columns of an exclusive holder.
func (l *lease) isExclusive() bool { return !l.req.Shared && l.req.Slots == 0 }

// Release implements [driver.Lease]. If it fails because the server is unavailable, the driver
// retries in the background until it is closed.
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return l.err
	}
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	leave, err := l.d.releasing.enter(ctx)
	freed := false
	if err == nil {
		freed, err = l.remove(ctx)
		leave()
	}
	if err != nil {
		l.d.registry.recordCleanup(l.d, l.nonce, l.completeRelease, err)
		return err // unchanged: the caller may call Release again
	}
	l.ended = true
	if !freed {
		l.err = driver.ErrLost
	}
	return l.err
}

// completeRelease retries a Release that has failed.
func (l *lease) completeRelease(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	_, err := l.remove(ctx)
	if err == nil {
		l.ended = true
	}
	return err
}

// remove removes the session's lock, and the lease from its row. freed reports whether the row
// had it.
func (l *lease) remove(ctx context.Context) (freed bool, err error) {
	if err := l.drop(ctx); err != nil {
		return false, err
	}
	return l.removeFromRow(ctx)
}

// errUnconfirmed means that the lease is gone, but an answer was lost: the driver can't tell
// whether this release removed the lease or whether it had ended before.
var errUnconfirmed = fmt.Errorf("%w: the answer to the release was lost", driver.ErrUnavailable)

// removeFromRow removes the lease from its row, or keeps it there until MinHold has passed. freed
// reports whether the row had it.
func (l *lease) removeFromRow(ctx context.Context) (freed bool, err error) {
	least, maybeRemoved := l.req.MinHold.Microseconds(), false
	if l.isExclusive() {
		var res execResult
		res, err = l.d.exec(ctx, l.d.sql.releaseFast, least, least, least, least, []byte(l.req.Name), int64(l.grant.Token))
		freed, maybeRemoved = res.rows == 1, res.repeated
	} else {
		err = l.d.change(ctx, l.req.Name, func(s *state) (bool, error) {
			h := s.holderByToken(l.grant.Token)
			if freed, maybeRemoved = h != nil, s.maybeWritten; !freed {
				return false, nil
			}
			h.Since = min(h.Since, s.now) // as releaseFast does
			if h.Until, h.Kept = h.Since+least, true; h.Until <= s.now {
				s.removeHolder(l.grant.Token)
			}
			s.signalFirst()
			return true, nil
		})
	}
	if err == nil && !freed && maybeRemoved {
		err = errUnconfirmed
	}
	return freed, l.d.rowError(l.req.Name, err)
}

// Renew implements [driver.Driver]. Up to 256 exclusive leases of rows take one statement
// together. Other leases of rows take two statements each.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if len(due) == 0 {
		return answers
	}
	err := d.life.Ready(ctx)
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if err == nil {
		var leave func()
		if leave, err = d.renewing.enter(inner); err == nil {
			defer leave()
		}
	}
	var exclusive, others []renewal
	for i, one := range due {
		r := renewal{one.(*lease), &answers[i]}
		if r.isExclusive() && d.session == nil {
			exclusive = append(exclusive, r)
		} else {
			others = append(others, r)
		}
	}
	answer := func(all []renewal, extend func(context.Context, []renewal) error) {
		slices.SortFunc(all, func(a, b renewal) int { return cmp.Compare(a.req.Name, b.req.Name) })
		for chunk := range slices.Chunk(all, batchSizes[len(batchSizes)-1]) {
			if err == nil {
				err = extend(inner, chunk)
			}
			for _, r := range chunk {
				if err != nil {
					*r.answer = driver.Renewal{Err: err}
				}
			}
		}
	}
	answer(exclusive, d.extend)
	answer(others, d.extendEach)
	return answers
}

// A renewal is one lease of a call of Renew, and the place of its answer.
type renewal struct {
	*lease
	answer *driver.Renewal
}

// setAnswer sets the answer. A lease that is not held any more is lost.
func (r renewal) setAnswer(held bool, start driver.Instant) {
	if !held || r.hasEnded() {
		r.answer.Err = driver.ErrLost
		r.discard()
		return
	}
	r.answer.Start = start
}

// setAnswerFrom sets the answer by the row's state, which is nil if there is no row. The driver
// can't tell whether a lease in a malformed row is still held.
func (r renewal) setAnswerFrom(s *state, start driver.Instant) {
	if s != nil && s.malformed != nil && !r.hasEnded() {
		r.answer.Err = s.malformed
		return
	}
	r.setAnswer(s != nil && s.holderByToken(r.grant.Token) != nil, start)
}

// extend extends exclusive leases together. A malformed row fails only its own renewal.
func (d *Driver) extend(ctx context.Context, all []renewal) error {
	return driverkit.Isolate(all, isMalformed,
		func(some []renewal) error { return d.extendBatch(ctx, some) },
		func(r renewal, err error) { r.answer.Err = d.rowError(r.req.Name, err) })
}

// extendBatch extends exclusive leases, with one statement if all are still held.
func (d *Driver) extendBatch(ctx context.Context, all []renewal) error {
	n := batchSize(len(all))
	var ttls, tokens, named []any
	for i := range n {
		r := all[min(i, len(all)-1)]
		name := []byte(r.req.Name)
		ttls = append(ttls, name, r.req.TTL.Microseconds())
		tokens = append(tokens, name, int64(r.grant.Token))
		named = append(named, name)
	}
	start := driver.Now()
	res, err := d.exec(ctx, expandNames(d.sql.renew, n), slices.Concat(ttls, named, tokens)...)
	if err != nil {
		return err
	}
	if int(res.rows) == len(all) {
		for _, r := range all {
			r.setAnswer(true, start)
		}
		return nil
	}
	// Some are lost. Those that are still in their rows were extended: one that had ended does
	// not begin again.
	found, err := d.read(ctx, namesOf(all))
	if err != nil {
		return err
	}
	for _, r := range all {
		r.setAnswerFrom(found[r.req.Name], start)
	}
	return nil
}

// extendEach extends leases of sessions together, and other leases one by one.
func (d *Driver) extendEach(ctx context.Context, all []renewal) error {
	if d.session != nil {
		return d.session.confirm(ctx, all)
	}
	for _, r := range all {
		held := false
		var start driver.Instant
		err := d.change(ctx, r.req.Name, func(s *state) (bool, error) {
			h := s.holderByToken(r.grant.Token)
			if held, start = h != nil, s.start; held {
				h.Until = s.now + r.req.TTL.Microseconds()
			}
			return held, nil
		})
		if isMalformed(err) {
			r.answer.Err = err
			continue
		}
		if err != nil {
			return err
		}
		r.setAnswer(held, start)
	}
	return nil
}

func namesOf(all []renewal) []string {
	names := make([]string, len(all))
	for i, r := range all {
		names[i] = r.req.Name
	}
	return names
}

// discard ends a lease that is no longer in the store. It does not call OnLost.
func (l *lease) discard() {
	l.lose(nil)
	l.dropInBackground()
}

// dropInBackground drops a lost lease in the background.
func (l *lease) dropInBackground() {
	l.d.registry.removeLease(l)
	if l.d.session == nil {
		return
	}
	l.d.life.Go(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), driverkit.CleanupTimeout, errNoAnswer)
		defer cancel()
		l.d.cleanUp(ctx, l.nonce, l.drop)
	})
}
