package sqlitelock

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// maxTime bounds what is added to times that the database computes with: 36 years.
const maxTime = 1 << 60

// A lease implements [driver.Lease].
type lease struct {
	d       *Driver
	name    string
	owner   string
	token   int64 // the first, by which the lease is known
	mode    int64
	byte    int64
	ttl     time.Duration
	minHold time.Duration
	grant   driver.Grant
	file    *os.File // has the byte locked if mode is modeInherit

	mu       sync.Mutex
	released bool  // Release has an answer for good, which is err
	err      error // nil or ErrLost
	dropped  bool  // the byte was unlocked
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
	l.file, err = t.lockApart(l.byte)
	l.grant.File = l.file
	return err
}

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
	err := l.d.do(ctx, &op{run: func(t *tx) (err error) {
		found, err = l.end(t)
		return err
	}})
	if err != nil {
		// Without its byte the row is dead, so that the lock is free also when the disk is full. A lease that is to
		// stay for a while needs its row changed.
		if l.minHold == 0 && l.mode != modeDetached {
			l.unlock()
		}
		return err
	}
	if !found && !l.dropped {
		l.err = driver.ErrLost
	}
	l.released = true
	l.unlock()
	return l.err
}

// end ends the lease in the database, or keeps its row for the rest of the MinHold. It reports whether it was there.
func (l *lease) end(t *tx) (bool, error) {
	if l.minHold > 0 {
		least := int64(min(l.minHold, maxTime))
		n, err := t.db.exec(`UPDATE leases SET mode = ?, deadline = since + ?
			WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ? AND since + ? > ?`,
			modeKept, least, l.name, l.token, l.owner, modeKept, t.now, least, t.now)
		if err != nil || n > 0 {
			return n > 0, err
		}
	}
	n, err := t.db.exec(`DELETE FROM leases WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,
		l.name, l.token, l.owner, modeKept, t.now)
	return n > 0, err
}

// revoke ends the lease without regard to its MinHold.
func (l *lease) revoke(t *tx) error {
	t.after = append(t.after, l.drop)
	_, err := t.db.exec(`DELETE FROM leases WHERE name = ? AND token = ? AND owner = ?`, l.name, l.token, l.owner)
	return err
}

// drop unlocks the byte, which wakes who waits for the lock.
func (l *lease) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlock()
}

func (l *lease) unlock() {
	if l.dropped {
		return
	}
	l.dropped = true
	if l.file == nil {
		l.d.side.unlock(l.byte)
		return
	}
	// Closing would leave the byte locked if a child has the file too.
	setLock(l.file, lockNone, l.byte, false) //nolint:errcheck // it fails only if the file is closed
	l.file.Close()                           // nothing was written
}

// Renew implements [driver.Driver]. The leases are renewed in as few transactions as let other processes have their
// turn in between.
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
	found := make([]bool, len(due)) // read only if do has not left
	err := d.do(ctx, &op{run: func(t *tx) error {
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
			l.(*lease).lose()
		}
	}
	return answers
}

// renew moves the lease's end, unless it has passed. It reports whether it had not.
func (l *lease) renew(t *tx) (bool, error) {
	n, err := t.db.exec(`UPDATE leases SET deadline = ?
		WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,
		after(t.now, l.ttl), l.name, l.token, l.owner, modeKept, t.now)
	return n > 0, err
}

// lose notes that the lease has ended, which a later Release repeats.
func (l *lease) lose() {
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
	err := d.do(ctx, &op{run: func(t *tx) error {
		found = false
		q, err := t.load(name, 0)
		if err != nil {
			return err
		}
		for _, l := range q.leases {
			if l.owner == owner && uint64(l.token) == token {
				found = true
				t.unlock(l.byte) // if it is ours; if not, the waiters see it when they look next
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
