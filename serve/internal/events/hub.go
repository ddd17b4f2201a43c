package events

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// maxShown bounds the events that are kept, by how many holds and waiters their locks have in
	// all: each tells of all of its lock. A listener that has missed others gets the snapshot.
	maxShown = 100_000

	// MaxLocks is how many locks a hub compares. A snapshot of them is kept in memory.
	MaxLocks = 100_000

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
	poller    *poller // nil: nobody listens
}

// NewHub returns a hub that lists the store once in each interval, or less often if that takes
// long. While the store does not answer, the pauses are as long as the attempts. Start runs a func
// in the background, which ends when stop is closed.
func NewHub(source Source, interval time.Duration, start func(func()), stop <-chan struct{}) *Hub {
	return &Hub{source: source, interval: interval, start: start, stop: stop}
}

// A poller lists the store from the first listener on until the last one has gone.
type poller struct {
	h *Hub

	// These are guarded by the mu of the hub.
	wake chan struct{} // closed and replaced when something is new
	err  error         // of the last listing; the snapshot is older then
	last snapshot
}

// A snapshot is what a listing has found, and the events that have led to it. It does not change.
type snapshot struct {
	number int             // of the listing; 0: there is none
	at     time.Time       // of its end
	locks  []driver.Status // in the order of their names
	events []Event         // all that followed the snapshot number from
	from   int
	shown  int // the sum of what the events show
}

// A Listener reads the events of a hub. It is for one goroutine at a time.
type Listener struct {
	p    *poller
	wake <-chan struct{}
	seen int // the number of the last snapshot that it knows
	err  error
}

// A Batch is what is new to a listener.
type Batch struct {
	At     time.Time       // of the snapshot that this was seen in
	Reset  bool            // Locks is all that there is now, and what the listener knew before is void
	Locks  []driver.Status // in the order of their names
	Events []Event         // in order
	Err    error           // the store could not be listed; nothing is newer than At
}

// Listen returns a listener, which begins with a snapshot. It must be closed.
func (h *Hub) Listen() *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners++
	if h.poller == nil {
		h.poller = &poller{h: h, wake: make(chan struct{})}
		h.start(h.poller.run)
	}
	return &Listener{p: h.poller}
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
	last := p.last
	isNew := last.number > l.seen
	fails := p.err != nil && p.err != l.err //nolint:errorlint // whether it is a new one
	if !isNew && !fails {
		return Batch{}, false
	}
	b := Batch{At: last.at, Err: p.err}
	switch {
	case !isNew:
	case l.seen >= last.from:
		first := sort.Search(len(last.events), func(i int) bool { return last.events[i].number > l.seen })
		b.Events = last.events[first:]
	default:
		b.Reset, b.Locks = true, last.locks
	}
	l.err, l.seen = p.err, last.number
	return b, true
}

// run lists the store until nobody listens, or the hub ends. The pause comes first: listeners who
// come and go do not make the hub list the store more often.
func (p *poller) run() {
	for {
		began := driver.Now()
		err := p.poll()
		pause := driver.Now().Sub(began)
		if err == nil || errors.Is(err, ErrTooMany) { // an attempt that fails costs the store little
			pause *= share - 1
		}
		select {
		case <-time.After(max(p.h.interval, pause)):
		case <-p.h.stop:
			return
		}
		if p.isOver() {
			return
		}
	}
}

// isOver reports whether nobody listens. The next listener gets another poller then.
func (p *poller) isOver() bool {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if p.h.listeners > 0 {
		return false
	}
	p.h.poller = nil
	return true
}

// poll lists the store once, and keeps what is new.
func (p *poller) poll() error {
	locks, err := p.list()
	last := p.last // which nobody else changes
	if err == nil {
		last = last.next(locks)
	}
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.last, p.err = last, err
	close(p.wake)
	p.wake = make(chan struct{})
	return err
}

// list returns the locks of the store, in the order of their names.
func (p *poller) list() ([]driver.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), driver.AnswerTimeout)
	defer cancel()
	var locks []driver.Status
	err := p.h.source(ctx, func(st driver.Status) bool {
		locks = append(locks, st)
		return len(locks) <= MaxLocks && ctx.Err() == nil
	})
	if len(locks) > MaxLocks {
		err = ErrTooMany
	}
	slices.SortStableFunc(locks, func(a, b driver.Status) int { return compareName(a, b.Name) })
	// A store that is being reorganised may list a lock twice.
	locks = slices.CompactFunc(locks, func(a, b driver.Status) bool { return a.Name == b.Name })
	return locks, errors.Join(err, ctx.Err())
}

func compareName(st driver.Status, name string) int { return strings.Compare(st.Name, name) }

// next returns the snapshot that follows s, with the events between them.
func (s snapshot) next(locks []driver.Status) snapshot {
	before, from := s.locks, s.from
	s.number, s.at, s.locks = s.number+1, time.Now(), locks
	if s.number == 1 { // no listener knows one before
		s.from = 1
		return s
	}
	add := func(was, is driver.Status) {
		diff(was, is, func(kind string, hold driver.Holding) {
			s.add(Event{Kind: kind, At: s.at, Lock: is, Hold: hold, number: s.number})
		})
	}
	for _, was := range before {
		if _, ok := slices.BinarySearchFunc(locks, was.Name, compareName); !ok {
			add(was, driver.Status{Name: was.Name})
		}
	}
	for _, is := range locks {
		was := driver.Status{}
		if i, ok := slices.BinarySearchFunc(before, is.Name, compareName); ok {
			was = before[i]
		}
		add(was, is)
	}
	if s.from != from { // what was removed is not kept by the array
		s.events = slices.Clone(s.events)
	}
	return s
}

// add appends an event. Listeners may read what is before it.
func (s *snapshot) add(e Event) {
	s.events = append(s.events, e)
	for s.shown += e.shows(); s.shown > maxShown; s.events = s.events[1:] {
		s.shown -= s.events[0].shows()
		s.from = s.events[0].number
	}
}
