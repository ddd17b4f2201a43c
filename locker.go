package snib

// This file has the Locker, the stages of an acquisition, and the discipline of the mutex.

import (
	"context"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// A Locker acquires locks in one store. It is safe for concurrent use. A program needs only one.
type Locker struct {
	core *core
	conf config
	err  error // set if conf can't be used

	derived bool // made by With
}

type (
	// A Driver acquires locks in one store for a [Locker]. Each backend's package makes one with
	// New or Open; programs only pass it on.
	Driver = driver.Driver

	// Info says what a backend promises.
	Info = driver.Info
)

// core is the state that a Locker shares with all Lockers derived from it by With.
//
// A lock goes through these stages. Each has a file of its own, with the types that it owns.
//
//	resolve   the acquisition joins a hold that its context carries, or goes on
//	enqueue   it waits for its turn in this process, or gets a hold from another goroutine
//	request   the driver acquires the lease, with retries while the store is unavailable
//	install   the lease is checked, and becomes a hold
//	keep      the keeper renews the lease, and ends the hold if it can't
//	release   the lease goes to the next goroutine (handover.go), or back to the store
//
// Locker.acquireHold leads through the first four. The keeper is goroutines, and Lock.Release leads
// through the last.
//
// One mutex, mu, guards everything that changes. It guards the types hold, lease, nameQueue,
// waiterList, keeper, leaseHeap and watermarks: their methods are called with mu held,
// or before another goroutine knows the object. All other functions are called without mu, except
// those whose names end in Locked. mu is never held during a request to the store, a callback, or
// the cancellation of a context.
type core struct {
	driver driver.Driver
	info   driver.Info
	holder driver.Holder

	tracesRenewals atomic.Bool // a Trace of some Locker is told of renewals
	releases       driverkit.SharedTimeout

	requests sync.WaitGroup // acquisitions in the stages request and install

	mu           sync.Mutex // guards what follows
	isClosed     bool
	cancels      map[context.Context]context.CancelCauseFunc // of requests: an AfterFunc would cost more
	queues       map[string]*nameQueue
	storeWaiters map[string]int // by name: acquisitions outside the local queues
	keeper       keeper
	watermarks   watermarks
}

// New returns a Locker that acquires locks through d. Closing the Locker closes d.
//
// New returns [ErrInvalid] if an option can't be used, or requires more than d promises.
func New(d Driver, opts ...Option) (*Locker, error) {
	if d == nil {
		return nil, &Error{Op: "new", Backend: "none", Err: driver.Invalidf("driver: it is nil")}
	}
	info := d.Info()
	conf, err := config{retryTimeout: driver.RetryTimeout}.withOptions(info, opts)
	if err != nil {
		return nil, &Error{Op: "new", Backend: info.Backend, Err: err}
	}
	host, _ := os.Hostname() // shown to people only
	l := &Locker{conf: conf, core: &core{
		driver: d,
		info:   info,
		holder: driver.Holder{Host: host, PID: os.Getpid()},
		keeper: keeper{wakeup: make(chan struct{}, 1)},

		releases:     driverkit.SharedTimeout{Least: releaseTimeout * 9 / 10, Most: releaseTimeout},
		cancels:      make(map[context.Context]context.CancelCauseFunc),
		queues:       make(map[string]*nameQueue),
		storeWaiters: make(map[string]int),
		watermarks:   make(watermarks),
	}}
	l.noteTraces()
	return l, nil
}

// With returns a Locker with further options. It shares the driver, queues and holds of l. If an
// option can't be used, [Locker.Err] and each acquisition through the new Locker return the error.
// Of [NoWait] and [MaxWait], the one that is given last replaces the other. The new Locker need not
// be closed.
func (l *Locker) With(opts ...Option) *Locker {
	l.mustBeMade()
	conf, err := l.conf.withOptions(l.core.info, opts)
	if l.err != nil {
		err = l.err
	} else if err != nil {
		err = &Error{Op: "with", Backend: l.core.info.Backend, Err: err}
	}
	derived := &Locker{core: l.core, conf: conf, err: err, derived: true}
	derived.noteTraces()
	return derived
}

// noteTraces records that there are Traces of renewals.
func (l *Locker) noteTraces() {
	if len(l.conf.traces.renewed) > 0 {
		l.core.tracesRenewals.Store(true)
	}
}

// Info returns what the backend promises.
func (l *Locker) Info() Info {
	l.mustBeMade()
	return l.core.info
}

// noLocker says what is wrong with a Locker that no New has returned.
const noLocker = "it is nil or zero; check the error of New before you use the Locker"

// Err returns why l can't be used, or nil: an option of [Locker.With], or that no New has made it.
// It asks the store nothing, and does not say whether l is closed.
func (l *Locker) Err() error {
	if l == nil || l.core == nil {
		return &Error{Op: "use", Backend: "none", Err: driver.Invalidf("Locker: %s", noLocker)}
	}
	return l.err
}

// mustBeMade panics if no New has returned l, in a method that returns no error.
func (l *Locker) mustBeMade() {
	if l == nil || l.core == nil {
		panic("snib: invalid Locker: " + noLocker)
	}
}

// Close ends all holds of the Locker and of the Lockers derived from it, as lost, and closes the
// driver. Pending and later acquisitions return [ErrClosed]. Close of a Locker that [Locker.With]
// has made does nothing: the driver, queues and holds belong to the one that [New] has made.
//
// The store may give the locks away at once, as SQLite and all stores with sessions do, or when
// their leases lapse; only a [LockDelay] is always kept. So wait for the work under them, or
// release them, before Close.
func (l *Locker) Close() error {
	if l == nil || l.core == nil {
		return l.Err()
	}
	if l.derived {
		return nil
	}
	c := l.core
	var ended endings
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		for _, q := range c.queues {
			q.closeWaiters()
		}
		for len(c.keeper.heap) > 0 {
			ended = append(ended, c.loseLocked(c.keeper.heap[0], newLoss(LossClosed, ErrClosed.Error(), ErrClosed)))
		}
		c.keeper.wake()
	}
	pending := maps.Clone(c.cancels)
	c.mu.Unlock()
	ended.run()
	for _, cancel := range pending {
		cancel(ErrClosed)
	}
	bounded, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	tidyUp(bounded, c.requests.Wait) // a closed driver could not release what it has just granted
	return c.driver.Close()
}

// closeTimeout bounds how long Close waits for acquisitions to give up.
const closeTimeout = time.Second

// wrapError returns err as an [*Error].
func (l *Locker) wrapError(op, name string, err error) error {
	return &Error{Op: op, Name: name, Backend: l.core.info.Backend, Err: err}
}
