package pglock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

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

	// Guarded by session.mu:
	lockRequested bool // the session has tried the advisory lock, or is about to
	dropped       bool // the session must not keep the advisory lock

	releaseMu sync.Mutex // serializes Release

	mu        sync.Mutex
	granted   bool // Acquire is about to return the lease
	releasing bool // Release was called: from then on the end is not a loss
	ended     bool // nothing is left to release
	err       error
}

// newLease returns the lease of the entry h, which the request was granted.
func (a *attempt) newLease(h *entry, start driver.Instant, s state) *lease {
	l := &lease{d: a.d, req: a.req, nonce: h.Nonce, grant: driver.Grant{Token: h.Token, Tokens: h.Tokens, Start: start}}
	if a.d.session != nil {
		l.grant.TTL = a.d.conf.sessionTimeout
	}
	if h.Tell {
		l.wantedCh = make(chan struct{})
		l.grant.Wanted = l.wantedCh
		if s.othersWait(h.Channel) {
			l.notifyWanted()
		}
	}
	a.d.registry.addLease(l)
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

// drop removes a lease from the driver, and its advisory lock from the session. granted is false
// for a lease that Acquire did not return.
func (l *lease) drop(ctx context.Context, granted bool) {
	l.d.registry.removeLease(l)
	if s := l.d.session; s != nil {
		s.unlock(ctx, l, granted)
	}
}

// markGranted records that Acquire is about to return the lease. From then on it can be lost.
func (l *lease) markGranted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.granted = true
}

// lose ends the lease because the store or the session has ended it. It calls OnLost unless why
// is nil. It returns false, and does nothing, if the lease was not granted yet.
func (l *lease) lose(why error) (granted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.granted || l.ended || l.releasing {
		return l.granted
	}
	l.ended, l.err = true, driver.ErrLost
	if l.req.OnLost != nil && why != nil {
		l.req.OnLost(why)
	}
	return true
}

// markBroken ends a lease that is no longer in its row. It returns false, and does nothing, if
// the lease was not granted yet.
func (l *lease) markBroken() bool {
	if !l.lose(fmt.Errorf("%w: it was broken, or its time was over", driver.ErrLost)) {
		return false
	}
	if l.hasEnded() {
		l.d.registry.removeLease(l)
		if l.d.session != nil {
			l.d.life.Go(func() { l.drop(context.Background(), true) })
		}
	}
	return true
}

// hasEnded reports whether the lease has ended, as far as the driver knows.
func (l *lease) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	l.releaseMu.Lock()
	defer l.releaseMu.Unlock()
	l.mu.Lock()
	l.releasing = true
	ended, err := l.ended, l.err
	l.mu.Unlock()
	if ended {
		return err
	}
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	l.drop(ctx, true)
	args := []any{l.req.Name, int64(l.grant.Token), l.req.Owner, l.req.MinHold.Microseconds()}
	freed, err := l.d.execOnce(ctx, l.d.sql.releaseFast, args)
	if err == nil && !freed {
		freed, err = l.d.execOnce(ctx, l.d.sql.release, args)
	}
	if err != nil {
		if l.d.session != nil {
			l.d.removeEntryLater(l.req.Name, l.nonce)
		}
		return l.d.rowError(l.req.Name, err) // the caller may call Release again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if !freed {
		l.err = driver.ErrLost
	}
	return l.err
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if len(due) == 0 {
		return answers
	}
	if err := d.life.Ready(ctx); err != nil {
		return failAll(answers, err)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	start := driver.Now()
	if d.session != nil {
		var err error
		if start, err = d.session.ping(inner); err != nil {
			return failAll(answers, err)
		}
	}
	rows := map[string]renewedRow{}
	err := driverkit.Isolate(due, isMalformed, func(some []driver.Lease) error {
		found, err := d.extend(inner, some)
		maps.Copy(rows, found)
		return err
	}, func(one driver.Lease, err error) {
		name := one.(*lease).req.Name
		rows[name] = renewedRow{err: d.rowError(name, err)}
	})
	if err != nil {
		return failAll(answers, err)
	}
	for i, one := range due {
		l := one.(*lease)
		row := rows[l.req.Name]
		switch {
		case l.hasEnded(), row.err == nil && !slices.Contains(row.tokens, int64(l.grant.Token)):
			answers[i].Err = driver.ErrLost
			l.discard()
			continue
		case row.err != nil:
			answers[i].Err = row.err
			continue
		}
		answers[i].Start = start
		if row.hasWaiters {
			l.notifyWanted()
		}
	}
	return answers
}

// A renewedRow is what a renewal has found in the row of one name.
type renewedRow struct {
	tokens     []int64 // of the leases that are held
	hasWaiters bool
	err        error // the row is malformed
}

// extend extends the leases on the server, and returns what it found in their rows. In a session
// it only reads.
func (d *Driver) extend(ctx context.Context, some []driver.Lease) (map[string]renewedRow, error) {
	var names []string
	var tokens, ttls []int64
	for _, one := range some {
		l := one.(*lease)
		names = append(names, l.req.Name)
		tokens = append(tokens, int64(l.grant.Token))
		ttls = append(ttls, l.req.TTL.Microseconds())
	}
	sql := d.sql.renew
	if d.session != nil {
		sql = d.sql.confirm
	}
	found := map[string]renewedRow{}
	err := d.query(ctx, sql, []any{names, tokens, ttls}, func(rows pgx.Rows) error {
		var name string
		var row renewedRow
		err := rows.Scan(&name, &row.tokens, &row.hasWaiters)
		found[name] = row
		return err
	})
	if err != nil {
		return nil, err // what it found was rolled back
	}
	return found, nil
}

func failAll(answers []driver.Renewal, err error) []driver.Renewal {
	for i := range answers {
		answers[i].Err = err
	}
	return answers
}

// discard ends a lease that is no longer in the store. It does not call OnLost.
func (l *lease) discard() {
	l.lose(nil)
	l.drop(context.Background(), true)
}
