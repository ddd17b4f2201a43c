package sqlitelock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// maxTime bounds the durations that the database adds to times: 146 years in nanoseconds. The sum
// of this and the time since 1970 fits.
const maxTime = 1 << 62

// nanos returns a duration as the database adds it to times.
func nanos(d time.Duration) int64 { return int64(min(d, maxTime)) }

// A lease implements [driver.Lease]. It names a row of the table leases, which each request looks
// up: what arrives after the end of the lease changes nothing.
type lease struct {
	d     *Driver
	key   leaseKey
	ttl   time.Duration
	grant driver.Grant

	// durable says that a power cut must not undo what is done to the lease, as it outlives its
	// process, or may: it is detached, has a MinHold, or was granted to an unknown driver.
	durable bool

	mu       sync.Mutex
	released bool  // Release has its final answer, which is err
	err      error // nil or ErrLost
	tried    bool  // an earlier Release failed, and may have freed the lock
}

// A leaseKey is what a lease is known by.
type leaseKey struct{ name, id string }

// Lease returns the lease with the given id, which another driver may have acquired.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return &lease{d: d, key: leaseKey{name, id}, ttl: ttl, durable: true}
}

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// ID returns the id of the request that led to the grant.
func (l *lease) ID() string { return l.key.id }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return l.err
	}
	found, err := l.d.withLease(ctx, l.durable, l.key, (*tx).release)
	if err != nil {
		// Without its byte the row counts as dead, so the lock becomes free even when the disk
		// is full.
		if l.tried = true; !l.durable {
			l.d.drop(l.key)
		}
		return err
	}
	if !found && !l.tried {
		l.err = driver.ErrLost
	}
	l.released = true
	return l.err
}

// SetHolder implements [driver.Lease].
func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	found, err := l.d.withLease(ctx, false, l.key, func(t *tx, row *leaseRow) error {
		return t.db.exec(setHolder, h.Host, h.PID, h.Label, int(h.Kind), row.name, row.token)
	})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}

// Renew implements [driver.Driver]. It renews up to 1,000 leases per transaction, so
// that other processes can write in between.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	const most = 1000
	answers := make([]driver.Renewal, 0, len(due))
	for batch := range slices.Chunk(due, most) {
		answers = append(answers, d.renew(ctx, batch)...)
	}
	return answers
}

func (d *Driver) renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	var start driver.Instant
	found := make([]bool, len(due)) // both are read only if do returned nil
	durable := slices.ContainsFunc(due, func(l driver.Lease) bool { return l.(*lease).durable })
	err := d.do(ctx, &op{durable: durable, run: func(t *tx) (err error) {
		start = t.start
		for i, one := range due {
			l := one.(*lease)
			found[i], err = t.withLease(l.key, func(t *tx, row *leaseRow) error { return t.extend(row, l.ttl) })
			if err != nil {
				return err
			}
		}
		return nil
	}})
	answers := make([]driver.Renewal, len(due))
	for i := range due {
		switch {
		case err != nil:
			answers[i].Err = err
		case found[i]:
			answers[i].Start = start
		default:
			answers[i].Err = driver.ErrLost
		}
	}
	return answers
}

// Break implements [driver.Inspector]. It also frees what MinHold keeps.
func (d *Driver) Break(ctx context.Context, name, id string) error {
	found := false
	err := d.do(ctx, &op{durable: true, run: func(t *tx) error {
		q, err := t.load(name, 0)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(q.leases, func(l leaseRow) bool { return l.id == id })
		if found = i >= 0; !found {
			return nil
		}
		return t.remove(&q.leases[i])
	}})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}

// Withdraw implements [driver.Inspector]. It deletes the row of the waiter. One that is alive adds
// another row in its next round. The one behind it wakes at once if the waiter is of this driver,
// and else by itself.
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	return d.do(ctx, &op{run: func(t *tx) error {
		return t.db.query(withdrawWaiter, func(r row) { t.unlock(r.int(0)) }, name, id)
	}})
}

// withLease runs change on the row of a lease, in a transaction. It reports false if the lease has
// ended.
func (d *Driver) withLease(ctx context.Context, durable bool, key leaseKey,
	change func(*tx, *leaseRow) error) (found bool, err error) {
	err = d.do(ctx, &op{durable: durable, run: func(t *tx) (err error) {
		found, err = t.withLease(key, change)
		return err
	}})
	return err == nil && found, err // otherwise the writer may still be at it
}

// withLease is Driver.withLease within a transaction.
func (t *tx) withLease(key leaseKey, change func(*tx, *leaseRow) error) (bool, error) {
	var found *leaseRow
	err := t.db.query(selectLease, func(r row) {
		if l := scanLease(r); !t.d.side.ended(l, t.now) {
			found = &l
		}
	}, key.name, key.id)
	switch {
	case err != nil:
		return false, err
	case found == nil:
		t.after = append(t.after, func() { t.d.drop(key) })
		return false, nil
	}
	return true, change(t, found)
}

// extend moves the end of a lease to one TTL from now, unless it is later.
func (t *tx) extend(l *leaseRow, ttl time.Duration) error {
	end := max(l.deadline, t.now+nanos(ttl))
	return t.db.exec(extendLease, end, t.wallAt(end), end-t.now, l.name, l.token)
}

// release deletes a lease, or keeps it for the rest of its MinHold.
func (t *tx) release(l *leaseRow) error {
	end := l.since + l.minHold
	if l.minHold == 0 || end <= t.now {
		return t.remove(l)
	}
	if err := t.wake(l); err != nil {
		return err
	}
	return t.db.exec(keepLease, end, t.wallAt(end), end-t.now, l.name, l.token)
}

// remove deletes a lease that is still valid, whatever its MinHold.
func (t *tx) remove(l *leaseRow) error {
	if err := t.wake(l); err != nil {
		return err
	}
	return t.delete(l)
}

// delete deletes the row of a lease. If the driver keeps its byte locked, it no longer does after
// the commit.
func (t *tx) delete(l *leaseRow) error {
	key, at := l.leaseKey, l.liveByte
	t.after = append(t.after, func() { t.d.forget(key, at) })
	return t.db.exec(deleteLease, l.name, l.token)
}

// wake wakes the waiters for a lock after the commit: those that watch the byte of the lease by
// unlocking it, or all if it is not ours.
func (t *tx) wake(l *leaseRow) error {
	key, at, everywhere := l.leaseKey, l.liveByte, false
	if !t.d.side.lockedHere(at) {
		elsewhere := func(r row) { everywhere = everywhere || !t.d.side.lockedHere(r.int(0)) }
		if err := t.db.query(selectFirstWaiters, elsewhere, l.name); err != nil {
			return err
		}
	}
	t.after = append(t.after, func() {
		if !t.d.forget(key, at) {
			t.d.bell.ring(key.name, everywhere)
		}
	})
	return nil
}

// forget unlocks the byte of a lease. It reports false if the byte is not ours.
func (d *Driver) forget(key leaseKey, at int64) bool {
	d.leases.CompareAndDelete(key, at)
	return d.side.unlock(at)
}

// drop unlocks the byte of a lease of this driver. Without it, the row counts as dead.
func (d *Driver) drop(key leaseKey) {
	if at, ok := d.leases.LoadAndDelete(key); ok {
		d.side.unlock(at.(int64))
	}
}
