package events

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// Kept is how many events a hub keeps for those who come back, or who are slow.
	Kept = 8192

	// KeptBytes is how much memory those events take: each has the waiters of its lock.
	KeptBytes = 32 << 20

	// MaxLocks is how many locks a hub compares. A snapshot of them is kept in memory.
	MaxLocks = 100_000

	// Linger is how long a hub goes on after the last listener has gone, so that one that comes
	// back goes on where it was.
	Linger = 15 * time.Second

	// share is how much of the time a hub lists the store at most, as 1/share.
	share = 10
)

// ErrTooMany is why a hub does not follow a store.
const ErrTooMany driver.Sentinel = "the store has too many locks for events"

// A Source calls yield for each lock of a store, until yield returns false.
type Source func(ctx context.Context, yield func(driver.Status) bool) error

// A Hub compares snapshots of a store for its listeners. It is safe for concurrent use. The events
// that it returns are shared by all listeners, who must not change them.
type Hub struct {
	source   Source
	interval time.Duration
	start    func(func()) // runs the poller in the background
	stop     <-chan struct{}

	mu        sync.Mutex
	listeners int
	poller    *poller // nil: nobody has listened for Linger
}

// NewHub returns a hub that lists the store once in each interval, or less often if that takes
// long. While the store does not answer, the pauses are as long as the attempts. Start runs a func
// in the background, which ends when stop is closed.
func NewHub(source Source, interval time.Duration, start func(func()), stop <-chan struct{}) *Hub {
	return &Hub{source: source, interval: interval, start: start, stop: stop}
}

// A poller lists the store from the first listener on until Linger after the last one. Its epoch
// distinguishes its events from those of other pollers and replicas.
type poller struct {
	h     *Hub
	epoch string

	// These are guarded by the mu of the hub.
	wake   chan struct{} // closed and replaced when something is new
	locks  map[string]driver.Status
	at     time.Time      // of the snapshot locks
	err    error          // of the last listing; locks and at are older then
	next   uint64         // the number of the next event
	events []Event        // the last ones, at most Kept, and of KeptBytes
	size   int            // of the events
	heard  driver.Instant // when isOver last found that somebody listens
}

// A Listener reads the events of a hub. It is for one goroutine at a time.
type Listener struct {
	p    *poller
	next uint64
	wake <-chan struct{}
	seen time.Time
	err  error
	lost bool // the next batch begins with a snapshot
}

// A Batch is what is new to a listener.
type Batch struct {
	Epoch  string
	Last   uint64          // the number of the last event that it has seen now
	At     time.Time       // of the snapshot that this was seen in
	Reset  bool            // Locks is all that there is now, and what the listener knew before is void
	Locks  []driver.Status // in the order of their names
	Events []Event         // in order
	Err    error           // the store could not be listed; nothing is newer than At
}

// Listen returns a listener that goes on behind the event last of an epoch, or with a snapshot if
// that event is not kept. The listener must be closed.
func (h *Hub) Listen(epoch string, last uint64) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners++
	p := h.poller
	if p == nil {
		p = &poller{h: h, epoch: rand.Text(), wake: make(chan struct{}), next: 1, heard: driver.Now()}
		h.poller = p
		h.start(p.run)
	}
	l := &Listener{p: p, next: last + 1, lost: true}
	if epoch == p.epoch && p.hasLocked(l.next) {
		l.lost = false
	}
	return l
}

// Close ends a listener.
func (l *Listener) Close() {
	l.p.h.mu.Lock()
	defer l.p.h.mu.Unlock()
	l.p.h.listeners--
}

// Next waits for what is new to the listener. It returns after each listing of the store, also
// without events, so that At is as new as it can be. Its error is that of ctx.
func (l *Listener) Next(ctx context.Context) (Batch, error) {
	for {
		if b, ok := l.look(); ok {
			return b, nil
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
			return Batch{}, context.Cause(ctx)
		}
	}
}

// look returns what is new, if anything is.
func (l *Listener) look() (Batch, bool) {
	p := l.p
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	l.wake = p.wake
	isNew := p.at.After(l.seen)
	fails := p.err != nil && p.err != l.err //nolint:errorlint // whether it is a new one
	if !isNew && !fails {
		return Batch{}, false
	}
	b := Batch{Epoch: p.epoch, Last: p.next - 1, At: p.at, Err: p.err}
	l.err, l.seen = p.err, p.at
	switch {
	case p.locks == nil: // the store was never listed
	case l.lost || !p.hasLocked(l.next):
		b.Reset, l.lost = true, false
		b.Locks = make([]driver.Status, 0, len(p.locks))
		for _, st := range p.locks {
			b.Locks = append(b.Locks, st)
		}
	default:
		b.Events = slices.Clone(p.events[len(p.events)-int(p.next-l.next):])
	}
	if p.locks != nil {
		l.next = p.next
	}
	slices.SortFunc(b.Locks, func(a, b driver.Status) int { return strings.Compare(a.Name, b.Name) })
	return b, true
}

// hasLocked reports whether all events from the one with the number next on are kept.
func (p *poller) hasLocked(next uint64) bool {
	return next <= p.next && p.next-next <= uint64(len(p.events))
}

// run lists the store until nobody has listened for Linger, or the hub ends.
func (p *poller) run() {
	for {
		began := driver.Now()
		err := p.poll()
		pause := driver.Now().Sub(began)
		if err == nil || errors.Is(err, ErrTooMany) { // an attempt that fails costs the store little
			pause *= share - 1
		}
		if !p.wait(max(p.h.interval, pause)) || p.isOver() {
			return
		}
	}
}

// wait waits, and reports false if the hub has ended.
func (p *poller) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.h.stop:
		return false
	}
}

// isOver reports whether nobody has listened for Linger. The next listener gets another poller
// then.
func (p *poller) isOver() bool {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	now := driver.Now()
	if p.h.listeners > 0 {
		p.heard = now
	}
	if now.Sub(p.heard) < Linger {
		return false
	}
	p.h.poller = nil
	return true
}

// poll lists the store once, and keeps what is new.
func (p *poller) poll() error {
	locks, err := p.list()
	at := time.Now()
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if p.err = err; err == nil {
		p.keepLocked(locks, at)
		p.locks, p.at = locks, at
	}
	close(p.wake)
	p.wake = make(chan struct{})
	return err
}

// list returns a snapshot of the store.
func (p *poller) list() (map[string]driver.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), driver.AnswerTimeout)
	defer cancel()
	locks := make(map[string]driver.Status, len(p.locks))
	err := p.h.source(ctx, func(st driver.Status) bool {
		locks[st.Name] = st
		return len(locks) <= MaxLocks && ctx.Err() == nil
	})
	if len(locks) > MaxLocks {
		err = ErrTooMany
	}
	return locks, errors.Join(err, ctx.Err())
}

// keepLocked keeps the events between the last snapshot and this one.
func (p *poller) keepLocked(locks map[string]driver.Status, at time.Time) {
	if p.locks == nil {
		return // what there is at first is no event
	}
	add := func(name string, before, after driver.Status) {
		after.Name = name
		diff(before, after, func(kind string, hold driver.Holding) {
			p.events = append(p.events, Event{Seq: p.next, Kind: kind, At: at, Lock: after, Hold: hold})
			p.size += sizeOf(after)
			p.next++
		})
	}
	for name, before := range p.locks {
		if _, ok := locks[name]; !ok {
			add(name, before, driver.Status{})
		}
	}
	for name, after := range locks {
		add(name, p.locks[name], after)
	}
	n := 0
	for ; len(p.events)-n > Kept || p.size > KeptBytes; n++ {
		p.size -= sizeOf(p.events[n].Lock)
	}
	p.events = slices.Delete(p.events, 0, n)
}
