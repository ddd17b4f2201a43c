package snib

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Locker acquires locks in one store. It is safe for concurrent use. A program needs only one.
type Locker struct {
	core *core
	conf config
	err  error // set if conf can't be used
}

// core is the state that a Locker shares with all Lockers derived from it by With.
type core struct {
	driver driver.Driver
	info   driver.Info
	holder driver.Holder
	owner  string        // random prefix of all owner ids
	serial atomic.Uint64 // the last suffix of an owner id

	// mu guards the fields below, and the mutable fields of name queues, leases and holds. It is
	// never held during a request to the store, a callback, or the cancellation of a context.
	mu           sync.Mutex
	isClosed     bool
	queues       map[string]*nameQueue
	storeWaiters map[string]int // by name: acquisitions outside the local queues
	ownerHolds   ownerHolds
	keeper       keeper
	watermarks   watermarks
}

// New returns a Locker that acquires locks through d. Closing the Locker closes d.
//
// New returns [ErrInvalid] if an option can't be used, or requires more than d promises.
func New(d driver.Driver, opts ...Option) (*Locker, error) {
	if d == nil {
		return nil, &Error{Op: "new", Backend: "none", Err: fmt.Errorf("%w driver: it is nil", ErrInvalid)}
	}
	info := d.Info()
	conf, err := config{releaseTimeout: defaultReleaseTimeout}.withOptions(info, opts)
	if err != nil {
		return nil, &Error{Op: "new", Backend: info.Backend, Err: err}
	}
	host, _ := os.Hostname() // shown to people only
	return &Locker{conf: conf, core: &core{
		driver: d,
		info:   info,
		holder: driver.Holder{Host: host, PID: os.Getpid()},
		owner:  rand.Text() + "-",
		keeper: keeper{wakeup: make(chan struct{}, 1)},

		queues:       make(map[string]*nameQueue),
		storeWaiters: make(map[string]int),
		ownerHolds:   make(ownerHolds),
		watermarks:   make(watermarks),
	}}, nil
}

// With returns a Locker with further options. It shares the driver, queues and holds of l. If an
// option can't be used, each acquisition through the new Locker returns the error.
func (l *Locker) With(opts ...Option) *Locker {
	conf, err := l.conf.withOptions(l.core.info, opts)
	if l.err != nil {
		err = l.err
	} else if err != nil {
		err = &Error{Op: "with", Backend: l.core.info.Backend, Err: err}
	}
	return &Locker{core: l.core, conf: conf, err: err}
}

// Info returns what the backend promises.
func (l *Locker) Info() driver.Info { return l.core.info }

// Acquire waits for the lock and takes it. The context bounds the wait only, not
// the hold: see [Lock.Context].
//
// If Acquire returns an error, the caller holds nothing and has no place in
// any queue. The error matches:
//
//   - [ErrHeld] if [MaxWait] ended the wait
//   - [ErrNested] if ctx carries a hold on the same name
//   - [ErrInvalid] if the name can't be used
//   - [ErrKind] if the name is in use as another kind of lock
//   - [ErrRegressed] if the fencing token went back
//   - [ErrClosed] if the Locker is closed
//   - [ErrLost] if the grant arrived after the lease was over
//   - [ErrUnavailable] if the store is unavailable
//   - [context.Cause] of ctx if that ended the wait
//   - or it is the backend's own error
//
// While the store is unavailable, Acquire retries for [driver.RetryTimeout]. While the store has
// no connection left ([driver.ErrFull]), Acquire retries for as long as the wait may last. If the
// wait ends while the store is unavailable, the error matches ErrUnavailable and not ErrHeld.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, l.conf.noWait)
}

// TryAcquire is like Acquire but does not wait. If somebody else holds the lock, it
// returns [ErrHeld] at once. If the store does not answer within
// [driver.AnswerTimeout], it returns [ErrUnavailable].
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, true)
}

// Close ends all holds of the Locker and of the Lockers derived from it, as lost, and closes the
// driver. Pending and later acquisitions return [ErrClosed].
//
// The store gives the locks away when their leases lapse. Work that still runs under them has
// that long to wind down. To give the locks away at once, release them before Close.
func (l *Locker) Close() error {
	c := l.core
	var ended endings
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		for _, q := range c.queues {
			q.closeWaiters()
		}
		for len(c.keeper.heap) > 0 {
			ended = append(ended, c.lose(c.keeper.heap[0], &lossError{fmt.Errorf("%w: %w", ErrLost, ErrClosed), LossClosed}))
		}
		c.keeper.wake()
	}
	c.mu.Unlock()
	ended.run()
	return c.driver.Close()
}

func (l *Locker) acquire(ctx context.Context, name string, noWait bool) (*Lock, error) {
	if l.err != nil {
		return nil, l.err
	}
	name = l.conf.prefix + name
	if l.conf.hasTraces {
		return l.acquireTraced(ctx, name, noWait)
	}
	lock, _, err := l.acquireUntraced(ctx, name, noWait)
	if err != nil {
		return nil, l.wrapError("acquire", name, err)
	}
	return lock, nil
}

// A holdOrigin says how an acquisition got its hold.
type holdOrigin struct {
	local  bool // no request was sent to the store
	joined bool // it added a lock to an existing hold
}

// acquireTraced is acquire with calls of the Traces. It measures how long the acquisition took.
func (l *Locker) acquireTraced(ctx context.Context, name string, noWait bool) (*Lock, error) {
	e := Event{Name: name, Backend: l.core.info.Backend}
	l.conf.traces.waitStarted.call(WaitStartedEvent{Event: e, Context: ctx})
	began := time.Now()
	lock, origin, err := l.acquireUntraced(ctx, name, noWait)
	waited := time.Since(began)
	if err != nil {
		err = l.wrapError("acquire", name, err)
	}
	l.conf.traces.waitEnded.call(WaitEndedEvent{Event: e, Context: ctx, Waited: waited, Local: origin.local, Joined: origin.joined, Err: err})
	if err != nil {
		return nil, err
	}
	e.Token = lock.Token()
	l.conf.traces.acquired.call(AcquiredEvent{Event: e, Context: ctx, Waited: waited, Local: origin.local, Joined: origin.joined})
	return lock, nil
}

// acquireUntraced acquires the lock without tracing, and returns errors as they are.
func (l *Locker) acquireUntraced(ctx context.Context, name string, noWait bool) (*Lock, holdOrigin, error) {
	if ctx.Err() != nil {
		return nil, holdOrigin{}, context.Cause(ctx)
	}
	if err := driver.CheckName(name); err != nil {
		return nil, holdOrigin{}, err
	}
	if h := l.core.findCarried(ctx, name); h != nil {
		lock, err := l.joinByContext(ctx, h)
		return lock, holdOrigin{local: true, joined: err == nil}, err
	}
	if h, err := l.joinByOwner(name); h != nil || err != nil {
		if err != nil {
			return nil, holdOrigin{}, err
		}
		return l.newLock(ctx, h), holdOrigin{local: true, joined: true}, nil
	}
	wait, cancel := l.waitContext(ctx, noWait)
	defer cancel()
	h, origin, err := l.acquireHold(wait, name, noWait)
	if err != nil {
		return nil, holdOrigin{}, addErrHeld(err)
	}
	return l.newLock(ctx, h), origin, nil
}

// waitContext returns a context that bounds the wait by MaxWait.
func (l *Locker) waitContext(ctx context.Context, noWait bool) (context.Context, context.CancelFunc) {
	if l.conf.maxWait == 0 || noWait {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, l.conf.maxWait, &waitError{after: l.conf.maxWait})
}

// acquireHold gets a hold from another goroutine of this process or, from the head of
// the local queue, from the store.
func (l *Locker) acquireHold(ctx context.Context, name string, noWait bool) (_ *hold, _ holdOrigin, err error) {
	var q *nameQueue // nil if the acquisition bypasses the local queue
	if l.conf.fair || l.conf.owner != "" {
		if !noWait {
			defer l.core.countStoreWaiter(name)()
		}
	} else {
		var handed *hold
		q, handed, err = l.core.waitInQueue(ctx, l, name, noWait)
		if handed != nil || err != nil {
			return handed, holdOrigin{local: true}, err
		}
	}
	h, joined, err := l.acquireLease(ctx, name, q, noWait)
	if q != nil && (err != nil || !l.conf.exclusive()) {
		l.core.advance(q) // an exclusive hold stays at the head until it ends
	}
	return h, holdOrigin{joined: joined}, err
}

// acquireLease acquires a lease from the store and makes it a hold. joined reports that the
// lease belongs to an existing hold.
func (l *Locker) acquireLease(ctx context.Context, name string, q *nameQueue, noWait bool) (_ *hold, joined bool, _ error) {
	c := l.core
	le := newLease(name, l.newOwner(), q)
	req := driver.Request{
		Name: name, Owner: le.owner, TTL: l.conf.ttl + l.conf.lockDelay, NoWait: noWait,
		Fair: l.conf.fair, Shared: l.conf.shared, Slots: l.conf.slots, MinHold: l.conf.minHold, LockDelay: l.conf.lockDelay,
		Inherit: l.conf.inheritable, OnLost: func(err error) { c.handleLost(le, err) }, Holder: c.holder,
	}
	req.Holder.Label = l.conf.label
	// Otherwise the death of this process would free the lock without the delay.
	req.Detached = l.conf.lockDelay > 0 && c.info.Tenure == driver.TenureLease
	c.mu.Lock()
	last := c.watermarks[name]
	if q != nil && l.conf.allowsHandOver() {
		req.Tokens = q.tokenBlockSize(l)
	}
	c.mu.Unlock()
	granted, err := l.requestLease(ctx, req, q)
	if err != nil {
		if l.conf.owner != "" {
			c.confirmOwnerHold(req.Owner, name)
		}
		return nil, false, err
	}
	h, joined, err := l.adoptLease(ctx, req, le, granted, last)
	if err != nil && granted != nil && !c.hasOwnerHold(req.Owner, name) {
		// The caller gets err. If this release fails, the lease lapses by itself.
		_, _ = c.release(granted, l.conf.releaseTimeout)
	}
	return h, joined, err
}

// adoptLease checks what the store granted, and makes it a hold. joined reports that the
// lease belongs to an existing hold.
func (l *Locker) adoptLease(ctx context.Context, req driver.Request, le *lease, granted driver.Lease, last uint64) (_ *hold, joined bool, _ error) {
	if granted == nil {
		return nil, false, fmt.Errorf("the driver granted nothing without an error")
	}
	grant := granted.Grant()
	if grant.Start.IsZero() || (grant.Token == 0 && l.core.info.Fencing > driver.FencingNone) {
		return nil, false, fmt.Errorf("the driver granted a lease without start or token")
	}
	if l.isRegressed(grant.Token, last) {
		if err := l.reportRegression(req.Name, grant.Token, last); err != nil {
			return nil, false, err
		}
	}
	le.fill(req, l.conf.lockDelay, granted)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	now := driver.Now()
	if le.deadline.Reached(now) {
		return nil, false, fmt.Errorf("%w: the grant came %v after it was asked for, with a TTL of %v",
			ErrLost, now.Sub(grant.Start), le.ttl)
	}
	return l.core.install(l, le, now)
}

// isRegressed reports whether token was granted before, where last is the greatest token seen.
// With Owner, the store may grant the same lease again, so token may equal last. If others share
// the lock with that owner, token may even be smaller.
func (l *Locker) isRegressed(token, last uint64) bool {
	switch {
	case l.core.info.Fencing == driver.FencingNone:
		return false
	case l.conf.owner != "":
		return token < last && l.conf.exclusive()
	}
	return token <= last
}

// reportRegression tells the Traces that a token went back. It returns an
// error if fencing is required.
func (l *Locker) reportRegression(name string, token, last uint64) error {
	l.conf.traces.regressed.call(RegressedEvent{Event: Event{Name: name, Backend: l.core.info.Backend, Token: token}, Last: last})
	if l.conf.fencing == driver.FencingNone {
		return nil
	}
	return fmt.Errorf("%w: the store granted %d after %d", ErrRegressed, token, last)
}

// newOwner returns the owner id of a new acquisition.
func (l *Locker) newOwner() string {
	if l.conf.owner != "" {
		return l.conf.owner
	}
	return l.core.owner + strconv.FormatUint(l.core.serial.Add(1), 36)
}

// release releases a lease in the store within timeout, independent of any caller's context. It
// also returns the time at which it began.
func (c *core) release(granted driver.Lease, timeout time.Duration) (began time.Time, _ error) {
	ctx := withLazyTimeout(context.Background(), timeout)
	defer ctx.cancel()
	err := granted.Release(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = noAnswerError(timeout)
	}
	return ctx.deadline.Add(-timeout), err
}

// wrapError returns err as an [*Error].
func (l *Locker) wrapError(op, name string, err error) error {
	return &Error{Op: op, Name: name, Backend: l.core.info.Backend, Err: err}
}

// exclusive reports whether a hold excludes all others.
func (c *config) exclusive() bool { return !c.shared && c.slots == 0 }

// watermarks are the greatest tokens seen, by name.
type watermarks map[string]uint64

// maxWatermarks bounds the memory of watermarks. At this size, each new name
// replaces an arbitrary other one.
const maxWatermarks = 1 << 14

func (w watermarks) raise(name string, token uint64) {
	if last, known := w[name]; known || len(w) < maxWatermarks {
		w[name] = max(last, token)
		return
	}
	for other := range w {
		delete(w, other)
		break
	}
	w[name] = token
}
