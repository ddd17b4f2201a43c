package sqlitelock

import (
	"math"
	"time"

	"github.com/sniblock/snib/driver"
)

// The mode of a lease says what ends it.
const (
	modeProcess = iota // its deadline, or the death of its process, whichever comes first
	// The same, but it goes on while the process is dead and one of its heirs lives.
	modeInherit
	modeDetached // its deadline
	modeKept     // its deadline: it was released and stays for its MinHold
)

const (
	// passTimeout is how long the first waiter can leave a free lock unused before those behind it
	// pass: it may be stopped.
	passTimeout = time.Second

	// longestSleep bounds the sleep of a waiter: a second for each one before it, so that few of a
	// long queue are awake, but not so long that a stopped one in the middle keeps the lock idle.
	longestSleep = 5 * passTimeout
)

// A leaseRow is a row of the table leases.
type leaseRow struct {
	leaseKey
	token, mode, slots, liveByte, process int64
	since, minHold, deadline              int64
	shared                                bool
	holder                                driver.Holder
}

// scanLease reads a row of leaseColumns.
func scanLease(r row) leaseRow {
	l := leaseRow{
		leaseKey: leaseKey{name: r.text(0), id: r.text(2)},
		token:    r.int(1), mode: r.int(3), shared: r.int(4) != 0, slots: r.int(5), liveByte: r.int(6), process: r.int(7),
		since: r.int(8), minHold: r.int(9), deadline: r.int(10),
		holder: scanHolder(r, 11),
	}
	if l.mode == modeKept {
		l.holder.Kind = driver.KindKept
	}
	return l
}

// scanHolder reads the description of a holder, from column at on.
func scanHolder(r row, at int) driver.Holder {
	return driver.Holder{Host: r.text(at), PID: int(r.int(at + 1)), Label: r.text(at + 2),
		Kind: driver.HolderKind(r.int(at + 3))}
}

// A waiterRow is a row of the table waiters.
type waiterRow struct {
	ticket, liveByte, since, called, slots int64
	shared                                 bool
	id                                     string
	holder                                 driver.Holder
}

// A queue contains the rows of one name.
type queue struct {
	leases  []leaseRow
	waiters []waiterRow // in the order of their tickets
}

// readQueue reads all rows of a name, with the waiters whose ticket is below before.
func readQueue(db *conn, name string, before int64) (q queue, err error) {
	err = db.query(selectLeases, func(r row) { q.leases = append(q.leases, scanLease(r)) }, name)
	if err != nil {
		return q, err
	}
	err = db.query(selectWaiters, func(r row) {
		q.waiters = append(q.waiters, waiterRow{r.int(0), r.int(1), r.int(2), r.int(3), r.int(4), r.int(5) != 0,
			r.text(6), scanHolder(r, 7)})
	}, name, before)
	return q, err
}

// ended reports whether a lease has ended.
func (s *sidecar) ended(l leaseRow, now int64) bool {
	late := now >= l.deadline
	switch l.mode {
	case modeDetached, modeKept:
		return late
	case modeInherit:
		// If the process is merely slow or stopped, the lease ends at its deadline. If
		// the process is dead, its heirs keep the lease for as long as they live:
		// nobody is left who could stop them.
		return !s.locked(l.liveByte) || late && s.locked(l.process)
	default:
		return late || !s.locked(l.liveByte)
	}
}

// load returns the live leases and waiters of a name, and deletes the rows of those
// that have ended.
func (t *tx) load(name string, before int64) (live queue, err error) {
	all, err := readQueue(t.db, name, before)
	if err != nil {
		return live, err
	}
	for _, l := range all.leases {
		if !t.d.side.ended(l, t.now) {
			live.leases = append(live.leases, l)
		} else if err := t.delete(&l); err != nil {
			return live, err
		}
	}
	for _, w := range all.waiters {
		if t.d.side.locked(w.liveByte) {
			live.waiters = append(live.waiters, w)
		} else if err := t.db.exec(deleteWaiter, name, w.ticket); err != nil {
			return live, err
		}
	}
	return live, nil
}

// cutLast removes the last waiter if it has this ticket, and reports whether it had.
func (q *queue) cutLast(ticket int64) bool {
	last := len(q.waiters) - 1
	if last < 0 || q.waiters[last].ticket != ticket {
		return false
	}
	q.waiters = q.waiters[:last]
	return true
}

// kindConflict returns an error if a request is of another kind than the leases and
// waiters of the name.
func (q *queue) kindConflict(slots int64) error {
	for _, l := range q.leases {
		if (l.slots > 0) != (slots > 0) {
			return driver.KindError(int(l.slots))
		}
	}
	for _, w := range q.waiters {
		if (w.slots > 0) != (slots > 0) {
			return driver.KindError(int(w.slots))
		}
	}
	return nil
}

// A room tracks what may still be granted of a name.
type room struct {
	leases    int64
	least     int64 // number of slots that one of the leases asked for, if this is a semaphore
	exclusive bool  // one of the leases is
}

func (q *queue) room() room {
	r := room{least: math.MaxInt64}
	for _, l := range q.leases {
		r.take(l.slots, l.shared)
	}
	return r
}

func (r *room) take(slots int64, shared bool) {
	r.leases++
	r.least = min(r.least, slots)
	r.exclusive = r.exclusive || !shared
}

func (r *room) fits(slots int64, shared bool) bool {
	switch {
	case slots > 0:
		return r.leases < min(r.least, slots)
	case shared:
		return !r.exclusive
	default:
		return r.leases == 0
	}
}

// mayGrant reports whether a request behind all waiters of the queue may be granted
// now. A waiter that leaves the lock unused is marked as called in its row, and
// passed later: the first one, which the kernel has woken, after passTimeout, and one that may
// sleep behind it when it must have woken by itself.
func (t *tx) mayGrant(name string, q *queue, slots int64, shared bool) (bool, error) {
	r := q.room()
	ahead := q.waiters[:0:0]
	blocked := false
	for i, w := range q.waiters {
		timeout := passTimeout
		if i > 0 {
			timeout += longestSleep
		}
		if w.called != 0 && t.now-w.called >= int64(timeout) {
			continue // ignored until it shows that it lives
		}
		ahead = append(ahead, w)
		if blocked = blocked || !r.fits(w.slots, w.shared); blocked {
			continue
		}
		r.take(w.slots, w.shared)
		if w.called != 0 {
			continue
		}
		if err := t.db.exec(callWaiter, t.now, name, w.ticket); err != nil {
			return false, err
		}
	}
	q.waiters = ahead
	return !blocked && r.fits(slots, shared), nil
}

// nextCheck returns how long a request behind this queue may sleep, and the bytes
// whose unlocking wakes it earlier.
func (q *queue) nextCheck(side *sidecar, now int64) (time.Duration, []int64) {
	if n := len(q.waiters); n > 0 {
		return min(passTimeout*time.Duration(n), longestSleep), []int64{q.waiters[n-1].liveByte}
	}
	const mostBytes = 32 // a thread each
	// The head of the queue checks now and then: not all systems have a bell.
	wait := passTimeout
	var bytes []int64
	for _, l := range q.leases {
		if left := time.Duration(l.deadline - now); left > 0 {
			wait = min(wait, left+time.Millisecond)
		}
		if len(bytes) < mostBytes && l.liveByte != 0 && side.locked(l.liveByte) {
			bytes = append(bytes, l.liveByte)
		}
	}
	return wait, bytes
}

// checkOldest unlocks the bytes of two leases of this driver if they have ended and were not
// released: threads of other processes may wait for these bytes. Each grant adds one lease and
// checks two, so no more bytes are left than leases are in use.
func (t *tx) checkOldest() error {
	n := min(2, len(t.w.granted))
	for _, key := range t.w.granted[:n] {
		if _, held := t.d.leases.Load(key); !held {
			continue
		}
		found, err := t.withLease(key, func(*tx, *leaseRow) error { return nil }) // it drops one that has ended
		if err != nil {
			return err
		}
		if found {
			t.w.granted = append(t.w.granted, key)
		}
	}
	t.w.granted = t.w.granted[n:]
	return nil
}

// sweep deletes the rows that dead processes have left for the name after the last
// one that was swept. Each grant sweeps one name, so leftovers go sooner or later,
// and no request ever scans the whole table.
func (t *tx) sweep() error {
	after := t.meta.swept + "\x00" // the smallest name after that one
	t.meta.swept, t.changed = "", true
	if err := t.db.query(selectNames, func(r row) { t.meta.swept = r.text(0) }, after, 1); err != nil {
		return err
	}
	if t.meta.swept == "" {
		return nil // the next sweep begins anew
	}
	_, err := t.load(t.meta.swept, math.MaxInt64)
	return err
}
