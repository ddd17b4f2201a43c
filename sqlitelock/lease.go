package sqlitelock

import (
	"context"
	"os"
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

// A lease implements [driver.Lease].
type lease struct {
	d       *Driver
	name    string
	owner   string
	token   int64 // the first token, which identifies the lease
	mode    int64
	byte    int64
	ttl     time.Duration
	minHold time.Duration
	grant   driver.Grant
	file    *os.File // has the byte locked if mode is modeInherit

	mu           sync.Mutex
	released     bool  // Release has its final answer, which is err
	err          error // nil or ErrLost
	byteUnlocked bool  // the byte was unlocked
}

func (a *attempt) newLease(token int64, block int, start driver.Instant) *lease {
	return &lease{
		d: a.d, name: a.req.Name, owner: a.req.Owner, token: token, mode: a.mode,
		ttl: a.req.TTL, minHold: a.req.MinHold,
		grant: driver.Grant{Token: uint64(token), Tokens: block, Start: start},
	}
}

// lock locks a new byte for the lease.
func (l *lease) lock(t *tx) (err error) {
	if l.byte, err = t.newByte(); err != nil {
		return err
	}
	if l.mode != modeInherit {
		return t.lock(l.byte)
	}
	l.file, err = t.lockNewFile(l.byte)
	return err
}

// A leaseKey is by what the user of a driver knows a lease.
type leaseKey struct{ name, owner string }

func (l *lease) key() leaseKey { return leaseKey{l.name, l.owner} }

// Grant implements [driver.Lease].
func (l *lease) Grant() driver.Grant { return l.grant }

// Release implements [driver.Lease].
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return l.err
	}
	var found bool
	durable := l.mode == modeDetached || l.minHold > 0 // the row would come back, or MinHold be lost
	err := l.d.do(ctx, &op{durable: durable, run: func(t *tx) (err error) {
		found, err = l.end(t)
		return err
	}})
	if err != nil {
		// Without its byte the row counts as dead, so the lock becomes free even when the disk
		// is full. A lease with a MinHold or without a process needs its row changed.
		if l.minHold == 0 && l.mode != modeDetached {
			l.unlock()
		}
		return err
	}
	if !found && !l.byteUnlocked {
		l.err = driver.ErrLost
	}
	l.released = true
	l.unlock()
	return l.err
}

// end deletes the lease's row, or keeps it for the rest of the MinHold. It reports
// whether the lease was still valid.
func (l *lease) end(t *tx) (bool, error) {
	if l.minHold > 0 {
		least := nanos(l.minHold)
		n, err := t.db.exec(`UPDATE leases SET mode = ?, deadline = since + ?, until = since + ?, ttl = ?
			WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ? AND since + ? > ?`,
			modeKept, least, least+t.wall-t.now, least, l.name, l.token, l.owner, modeKept, t.now, least, t.now)
		if err != nil || n > 0 {
			return n > 0, err
		}
	}
	n, err := t.db.exec(`DELETE FROM leases WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,
		l.name, l.token, l.owner, modeKept, t.now)
	return n > 0, err
}

// revoke deletes the lease's row regardless of its MinHold.
func (l *lease) revoke(t *tx) error {
	t.after = append(t.after, l.drop)
	_, err := t.db.exec(`DELETE FROM leases WHERE name = ? AND token = ? AND owner = ?`, l.name, l.token, l.owner)
	return err
}

// drop unlocks the byte, which wakes the waiters for the lock.
func (l *lease) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlock()
}

func (l *lease) unlock() {
	if l.byteUnlocked {
		return
	}
	l.byteUnlocked = true
	if l.file == nil {
		l.d.side.unlock(l.byte)
		return
	}
	l.d.leaseFiles.CompareAndDelete(l.key(), l.file) // an owner that acquired again has another file
	l.d.side.unlockFile(l.file, l.byte)
}

// SetLabel implements [driver.Lease].
func (l *lease) SetLabel(ctx context.Context, label string) error {
	found := false
	err := l.d.do(ctx, &op{run: func(t *tx) error {
		n, err := t.db.exec(`UPDATE leases SET label = ?
			WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,
			label, l.name, l.token, l.owner, modeKept, t.now)
		found = n > 0
		return err
	}})
	if err == nil && !found {
		l.markLost()
		err = driver.ErrLost
	}
	return err
}

// Renew implements [driver.Driver]. It renews up to 1,000 leases per transaction, so
// that other processes can write in between.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	const most = 1000
	answers := make([]driver.Renewal, 0, len(due))
	for len(due) > 0 {
		n := min(most, len(due))
		answers = append(answers, d.renew(ctx, due[:n])...)
		due = due[n:]
	}
	return answers
}

func (d *Driver) renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	start := driver.Now()
	found := make([]bool, len(due)) // read only if do returned nil
	detached := slices.ContainsFunc(due, func(l driver.Lease) bool { return l.(*lease).mode == modeDetached })
	err := d.do(ctx, &op{durable: detached, run: func(t *tx) error {
		for i, l := range due {
			var err error
			if found[i], err = l.(*lease).renew(t); err != nil {
				return err
			}
		}
		return nil
	}})
	answers := make([]driver.Renewal, len(due))
	for i, l := range due {
		switch {
		case err != nil:
			answers[i].Err = err
		case found[i]:
			answers[i].Start = start
		default:
			answers[i].Err = driver.ErrLost
			l.(*lease).markLost()
		}
	}
	return answers
}

// renew extends the lease unless it has ended. It reports whether it was still valid.
func (l *lease) renew(t *tx) (bool, error) {
	ttl := nanos(l.ttl)
	n, err := t.db.exec(`UPDATE leases SET deadline = ?, until = ?, ttl = ?
		WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,
		t.now+ttl, t.wall+ttl, ttl, l.name, l.token, l.owner, modeKept, t.now)
	return n > 0, err
}

// markLost records that the lease has ended; a later Release returns ErrLost.
func (l *lease) markLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released {
		l.released, l.err = true, driver.ErrLost
	}
	l.unlock()
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	found := false
	err := d.do(ctx, &op{durable: true, run: func(t *tx) error {
		found = false
		q, err := t.load(name, 0)
		if err != nil {
			return err
		}
		for _, l := range q.leases {
			if l.owner == owner && uint64(l.token) == token {
				found = true
				// unlock does nothing if the byte is another driver's: then the waiters
				// notice at their next check.
				t.unlock(l.byte)
				return t.deleteLease(name, l.token)
			}
		}
		return nil
	}})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}
