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

// A Locker acquires locks in one store. It is safe for concurrent use; one Locker is enough for a program.
type Locker struct {
	core *core
	conf config
	err  error // why conf can't be used
}

// core is what all Lockers share that were derived from one by With.
type core struct {
	driver driver.Driver
	info   driver.Info
	holder driver.Holder
	owner  string        // random: how the owners of all acquisitions begin
	serial atomic.Uint64 // how they end

	// mu guards what follows, and the mutable fields of gates, leases and holds. Neither the driver nor a callback nor
	// the end of a context is called under it.
	mu       sync.Mutex
	isClosed bool
	gates    map[string]*gate
	outside  map[string]int // who waits for a name in the store by themselves, without a gate
	owned    owned
	keeper   keeper
	seen     watermarks
}

// New returns a Locker that locks through d, which it closes when it is closed.
//
// It answers [ErrInvalid] if an option can't be used, or asks for more than d promises.
func New(d driver.Driver, opts ...Option) (*Locker, error) {
	if d == nil {
		return nil, &Error{Op: "new", Backend: "none", Err: fmt.Errorf("%w driver: it is nil", ErrInvalid)}
	}
	info := d.Info()
	conf, err := config{releaseTimeout: defaultReleaseTimeout}.configure(info, opts)
	if err != nil {
		return nil, &Error{Op: "new", Backend: info.Backend, Err: err}
	}
	host, _ := os.Hostname() // shown to people only
	return &Locker{conf: conf, core: &core{
		driver: d,
		info:   info,
		holder: driver.Holder{Host: host, PID: os.Getpid()},
		owner:  rand.Text() + "-",
		keeper: keeper{poke: make(chan struct{}, 1)},

		gates:   make(map[string]*gate),
		outside: make(map[string]int),
		owned:   make(owned),
		seen:    make(watermarks),
	}}, nil
}

// With returns a Locker with further options over the same driver, queues and holds. An option that can't be used is
// reported by each acquisition through it.
func (l *Locker) With(opts ...Option) *Locker {
	conf, err := l.conf.configure(l.core.info, opts)
	if l.err != nil {
		err = l.err
	} else if err != nil {
		err = &Error{Op: "with", Backend: l.core.info.Backend, Err: err}
	}
	return &Locker{core: l.core, conf: conf, err: err}
}

// Info says what the backend promises.
func (l *Locker) Info() driver.Info { return l.core.info }

// Acquire waits for the lock and takes it. The context bounds the wait only, not the hold: see [Lock.Context].
//
// Errors match [ErrHeld] if [MaxWait] was over, [ErrNested] if ctx carries a hold on the same name,
// [ErrInvalid] for a name that can't be used, [ErrKind], [ErrRegressed], [ErrClosed], [ErrLost] if
// the answer came so late that the lease was over, [context.Cause] of ctx if that ended the wait,
// or they are the backend's. A store that is unavailable is asked again for [driver.RetryTimeout];
// then the error matches [ErrUnavailable]. One that has no connection left ([driver.ErrFull]) is
// asked for as long as the wait may last. If the wait ends while the store is unavailable, the
// error matches ErrUnavailable and not ErrHeld. With an error nothing is held and no place in a
// queue stays behind.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, l.conf.noWait)
}

// TryAcquire is Acquire without the wait: if somebody else holds the lock it answers [ErrHeld] at once. A store that does
// not answer within [driver.AnswerTimeout] is [ErrUnavailable].
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, true)
}

// Close ends all holds of the Locker and of those derived from it, as lost, and closes the driver. Waiting acquisitions
// and later ones answer [ErrClosed]. The store gives the locks away when their leases lapse, so that what still runs
// under them has that long to wind down; release them first to give them away at once.
func (l *Locker) Close() error {
	c := l.core
	var over endings
	c.mu.Lock()
	if !c.isClosed {
		c.isClosed = true
		for _, g := range c.gates {
			g.dismiss()
		}
		for len(c.keeper.heap) > 0 {
			over = append(over, c.lose(c.keeper.heap[0], &lossError{fmt.Errorf("%w: %w", ErrLost, ErrClosed), LossClosed}))
		}
		c.keeper.wake()
	}
	c.mu.Unlock()
	over.run()
	return c.driver.Close()
}

func (l *Locker) acquire(ctx context.Context, name string, noWait bool) (*Lock, error) {
	if l.err != nil {
		return nil, l.err
	}
	name = l.conf.prefix + name
	if l.conf.traced {
		return l.traced(ctx, name, noWait)
	}
	lock, _, err := l.enter(ctx, name, noWait, driver.Instant{})
	if err != nil {
		return nil, l.fail("acquire", name, err)
	}
	return lock, nil
}

// A manner is how an acquisition got its hold.
type manner struct {
	local  bool // the store was not asked
	joined bool // it is one more lock of a hold that there was already
}

// traced is acquire where somebody wants to know how long it took.
func (l *Locker) traced(ctx context.Context, name string, noWait bool) (*Lock, error) {
	e := Event{Context: ctx, Name: name, Backend: l.core.info.Backend}
	l.conf.traces.waitStarted.tell(&e)
	began := driver.Now() // also the driver's, so that a Trace costs no reading of its own
	lock, how, err := l.enter(ctx, name, noWait, began)
	e.Local, e.Joined = how.local, how.joined
	var ended driver.Instant
	if err == nil && how == (manner{}) {
		ended = lock.hold.since // as good as now, without reading the clock
	} else {
		ended = driver.Now()
	}
	e.Waited = max(0, ended.Sub(began)) // readings may be a little early
	if err != nil {
		e.Err = l.fail("acquire", name, err)
	}
	l.conf.traces.waitEnded.tell(&e)
	if err != nil {
		return nil, e.Err
	}
	e.Token = lock.Token()
	l.conf.traces.acquired.tell(&e)
	return lock, nil
}

// enter is acquire without its frame. began is when it was called, if that is known.
func (l *Locker) enter(ctx context.Context, name string, noWait bool, began driver.Instant) (*Lock, manner, error) {
	if ctx.Err() != nil {
		return nil, manner{}, context.Cause(ctx)
	}
	if err := driver.CheckName(name); err != nil {
		return nil, manner{}, err
	}
	if h := l.core.carried(ctx, name); h != nil {
		lock, err := l.reenter(ctx, h)
		return lock, manner{local: true, joined: err == nil}, err
	}
	if h, err := l.rejoin(name); h != nil || err != nil {
		if err != nil {
			return nil, manner{}, err
		}
		return l.newLock(ctx, h), manner{local: true, joined: true}, nil
	}
	wait, cancel := l.bound(ctx, noWait)
	defer cancel()
	h, how, err := l.contend(wait, name, noWait, began)
	if err != nil {
		return nil, manner{}, heldAfterWait(err)
	}
	return l.newLock(ctx, h), how, nil
}

// bound returns a context for the wait.
func (l *Locker) bound(ctx context.Context, noWait bool) (context.Context, context.CancelFunc) {
	if l.conf.maxWait == 0 || noWait {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, l.conf.maxWait, &waitError{after: l.conf.maxWait})
}

// contend gets a hold from another goroutine of this process, or from the store once it is our turn to ask there.
func (l *Locker) contend(ctx context.Context, name string, noWait bool, began driver.Instant) (_ *hold, _ manner, err error) {
	var g *gate // stays nil for those who ask without the turn
	if l.conf.fair || l.conf.owner != "" {
		if !noWait {
			defer l.core.stepOutside(name)()
		}
	} else {
		var handed *hold
		g, handed, err = l.core.line(ctx, l, name, noWait)
		if handed != nil || err != nil {
			return handed, manner{local: true}, err
		}
	}
	h, joined, err := l.ask(ctx, name, g, noWait, began)
	if g != nil && (err != nil || !l.conf.exclusive()) {
		l.core.passTurn(g) // an exclusive hold keeps the turn until it ends
	}
	return h, manner{joined: joined}, err
}

// ask takes a lease in the store. joined means that it is that of a hold that there was already.
func (l *Locker) ask(ctx context.Context, name string, g *gate, noWait bool, began driver.Instant) (_ *hold, joined bool, _ error) {
	c := l.core
	le := newLease(name, l.newOwner(), g)
	req := driver.Request{
		Name: name, Owner: le.owner, TTL: l.conf.ttl + l.conf.lockDelay, NoWait: noWait,
		Fair: l.conf.fair, Shared: l.conf.shared, Slots: l.conf.slots, MinHold: l.conf.minHold, LockDelay: l.conf.lockDelay,
		Inherit: l.conf.inheritable, OnLost: func(err error) { c.gone(le, err) }, Holder: c.holder,
	}
	req.Holder.Label = l.conf.label
	req.Detached = l.conf.lockDelay > 0 && c.info.Tenure == driver.TenureLease // or the death of this process would free the lock
	c.mu.Lock()
	seen := c.seen[name]
	if g != nil && l.conf.handsOver() {
		req.Tokens = g.block(l)
	}
	if g == nil || !g.passed { // else it queued since
		req.Begun = began
	}
	c.mu.Unlock()
	granted, err := l.request(ctx, req, g)
	if err != nil {
		return nil, false, err
	}
	h, joined, err := l.admit(ctx, req, le, granted, seen)
	if err != nil && granted != nil && !c.isOwned(req.Owner, name) {
		// Whoever asked is told of err; a release that the store does not hear lapses with the lease.
		_, _ = c.release(granted, l.conf.releaseTimeout)
	}
	return h, joined, err
}

// admit checks what the store granted, and makes it a hold.
func (l *Locker) admit(ctx context.Context, req driver.Request, le *lease, granted driver.Lease, seen uint64) (_ *hold, joined bool, _ error) {
	if granted == nil {
		return nil, false, fmt.Errorf("the driver granted nothing without an error")
	}
	grant := granted.Grant()
	if grant.Start.IsZero() || (grant.Token == 0 && l.core.info.Fencing > driver.FencingNone) {
		return nil, false, fmt.Errorf("the driver granted a lease without start or token")
	}
	if l.wentBack(grant.Token, seen) {
		if err := l.regressed(req.Name, grant.Token, seen); err != nil {
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

// wentBack reports whether a token is one that was granted before. An owner of its own may get its lease once more, and beside
// those of others if they share the lock.
func (l *Locker) wentBack(token, seen uint64) bool {
	switch {
	case l.core.info.Fencing == driver.FencingNone:
		return false
	case l.conf.owner != "":
		return token < seen && l.conf.exclusive()
	}
	return token <= seen
}

// regressed reports a token that went back: as an error where fencing is required, and to the traces.
func (l *Locker) regressed(name string, token, seen uint64) error {
	l.conf.traces.regressed.tell(&Event{Name: name, Backend: l.core.info.Backend, Token: token, Last: seen})
	if l.conf.fencing == driver.FencingNone {
		return nil
	}
	return fmt.Errorf("%w: the store granted %d after %d", ErrRegressed, token, seen)
}

// newOwner returns the id of a new acquisition.
func (l *Locker) newOwner() string {
	if l.conf.owner != "" {
		return l.conf.owner
	}
	return l.core.owner + strconv.FormatUint(l.core.serial.Add(1), 36)
}

// release gives a lease back, detached from whatever context has ended by now. It returns when it began, too.
func (c *core) release(granted driver.Lease, timeout time.Duration) (began time.Time, _ error) {
	ctx := within(context.Background(), timeout)
	defer ctx.end()
	err := granted.Release(ctx)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = unanswered(timeout)
	}
	return ctx.at.Add(-timeout), err
}

func (l *Locker) fail(op, name string, err error) error {
	return &Error{Op: op, Name: name, Backend: l.core.info.Backend, Err: err}
}

// exclusive reports whether a hold shuts all others out.
func (c *config) exclusive() bool { return !c.shared && c.slots == 0 }

// watermarks are the greatest tokens seen, by name.
type watermarks map[string]uint64

// maxWatermarks bounds the memory that they take. Past it an arbitrary one is forgotten for each new name.
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
