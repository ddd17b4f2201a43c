package drivertest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// A mutant is a driver that breaks one promise. The test of the suite is that the clauses for
// this promise fail, and that no others do.
type mutant struct {
	name       string
	fails      []string // the clauses that must fail
	whySeveral string   // why more than one clause fails
	base       func(*world) driver.Driver
	set        func(*world, *brokenDriver) // called for each driver
	// Or make, for a mutant with state: called for each store. Its result is called for each driver
	// on the store.
	make func(*world) func(*brokenDriver)
}

// setter returns the function to call for each driver on the store of w. It may be nil.
func (m mutant) setter(w *world) func(*brokenDriver) {
	switch {
	case m.make != nil:
		return m.make(w)
	case m.set != nil:
		return func(b *brokenDriver) { m.set(w, b) }
	}
	return nil
}

// mutants returns all mutants.
func mutants() []mutant {
	return slices.Concat(
		infoMutants(), exclusionMutants(), nameMutants(), tryMutants(), waitMutants(), cancelMutants(), fairMutants(),
		closeMutants(), leaseMutants(), renewMutants(), releaseMutants(), sessionMutants(), fencingMutants(),
		sharedMutants(), slotsMutants(), minHoldMutants(), wantedMutants(), answerMutants(),
		severMutants(), inspectMutants(), breakMutants(), withdrawMutants(), holderMutants(), grantMutants(),
		emptyMutants(), churnMutants(),
	)
}

// TestEveryClauseHasAMutant checks that each clause is failed by some mutant.
func TestEveryClauseHasAMutant(t *testing.T) {
	known := make(map[string]bool)
	for _, c := range clauses() {
		if known[c.name] {
			t.Errorf("two clauses are called %s", c.name)
		}
		if c.why == "" {
			t.Errorf("clause %s does not say why", c.name)
		}
		known[c.name] = true
	}
	caught := make(map[string]bool)
	for _, m := range mutants() {
		if len(m.fails) > 1 && m.whySeveral == "" {
			t.Errorf("mutant %q fails %d clauses and does not say why", m.name, len(m.fails))
		}
		for _, name := range m.fails {
			if !known[name] {
				t.Errorf("mutant %q names the clause %s, which does not exist", m.name, name)
			}
			caught[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !caught[name] {
			t.Errorf("clause %s has no mutant", name)
		}
	}
}

// TestSoundDrivers checks that the drivers that mutants are made of fail no clause, and that
// each clause is run on one of them.
func TestSoundDrivers(t *testing.T) {
	asked := make(map[string]bool)
	for _, m := range []mutant{{name: "lease"}, {name: "session", base: newSession}} {
		t.Run(m.name, func(t *testing.T) {
			for name, o := range m.verdicts(t) {
				if o.failed {
					t.Errorf("clause %s fails on a sound driver:\n%s", name, o.log)
				}
				if o.skipped == "" {
					asked[name] = true
				}
			}
		})
	}
	for _, c := range clauses() {
		if !asked[c.name] {
			t.Errorf("clause %s was asked of no sound driver", c.name)
		}
	}
}

// TestMutants checks that each mutant fails its clauses and no others. The Churn clauses may
// fail as well: they do everything at once, and notice other faults by luck. So may the Grant
// clauses, which do from another process what others do from one.
func TestMutants(t *testing.T) {
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			for name, o := range m.verdicts(t) {
				switch {
				case o.failed && !slices.Contains(m.fails, name) && !strings.HasPrefix(name, "Churn/") &&
					!strings.HasPrefix(name, "Grant/"):
					t.Errorf("clause %s fails too:\n%s", name, o.log)
				case !o.failed && slices.Contains(m.fails, name):
					t.Errorf("clause %s does not notice (skipped: %q)", name, o.skipped)
				}
			}
		})
	}
}

// An outcome is the result of a clause for one driver.
type outcome struct {
	failed  bool
	skipped string
	log     string
}

// verdicts runs all clauses against m, and returns their outcomes by name.
func (m mutant) verdicts(t *testing.T) map[string]outcome {
	all := make(map[string]outcome)
	for _, c := range clauses() {
		var rec recorder
		var skipped string
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, m)
			done := make(chan struct{})
			go func() { // Fatalf of the recorder ends this goroutine
				defer close(done)
				defer rec.finish()
				c.runTrial(&rec, t, w.harness(), &skipped)
			}()
			<-done
		})
		all[c.name] = outcome{rec.Failed(), skipped, rec.log}
	}
	return all
}

// A recorder records what a case reports, and lets nothing fail.
type recorder struct {
	testing.TB // nil: the suite calls no other methods

	mu       sync.Mutex
	failed   bool
	log      string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) SkipNow()         { runtime.Goexit() }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log += fmt.Sprintf(format, args...) + "\n"
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// finish runs the cleanups of a case.
func (r *recorder) finish() {
	if p := recover(); p != nil {
		r.Errorf("panic: %v", p)
	}
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// isEmptied is the flag of a world whose store was emptied.
const isEmptied = "the store is emptied"

// A world is the store of one case and the drivers on it.
type world struct {
	t       *testing.T
	mutant  mutant
	store   *memlock.Store
	setUp   func(*brokenDriver)
	restart func() // set by a mutant; called by Harness.Restart

	mu    sync.Mutex      // guards the state of mutants
	flags map[string]bool // such state, by the name of a lock: see setFlag
}

func newWorld(t *testing.T, m mutant) *world {
	w := &world{t: t, mutant: m, store: new(memlock.Store), flags: make(map[string]bool)}
	if m.base == nil {
		w.mutant.base = func(w *world) driver.Driver { return w.store.Open() }
	}
	w.setUp = m.setter(w)
	return w
}

// harness returns a harness with all functions.
func (w *world) harness() Harness {
	return Harness{
		Bubble: true,
		Secret: "hunter2",
		Open:   func(*testing.T) driver.Driver { return w.open() },
		Kill: func(t *testing.T, req driver.Request) func() {
			b := w.open()
			if _, err := b.Acquire(t.Context(), req); err != nil {
				t.Fatalf("Acquire = %v", err)
			}
			return b.kill
		},
		Sever: func(_ *testing.T, d driver.Driver) func() {
			b := d.(*brokenDriver)
			b.sever()
			return b.heal
		},
		Stall: func(_ *testing.T, d driver.Driver) func() {
			b := d.(*brokenDriver)
			b.sever()
			return b.deliver
		},
		Restart: func(*testing.T) {
			if w.restart != nil {
				w.restart()
			}
		},
		Empty: map[string]func(*testing.T){"break": func(t *testing.T) { w.empty(t.Context()) }},
	}
}

// open returns a driver that the mutant breaks.
func (w *world) open() *brokenDriver {
	inner := w.mutant.base(w)
	b := &brokenDriver{world: w, inner: fault.Wrap(inner, fault.Plan{}), base: inner}
	w.t.Cleanup(func() { b.inner.Close() })
	if w.setUp != nil {
		w.setUp(b)
	}
	return b
}

// empty ends all holds. Waiters keep their places, as if they had come again.
func (w *world) empty(ctx context.Context) {
	w.setFlag(isEmptied, true)
	d := w.store.Open()
	defer d.Close()
	_ = d.List(ctx, "", func(st driver.Status) bool {
		for _, h := range st.Holders {
			_ = d.Break(ctx, st.Name, h.ID)
		}
		return true
	})
}

// setFlag sets or clears the flag of a lock, and returns whether it was set before.
func (w *world) setFlag(name string, on bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.flags[name]
	w.flags[name] = on
	return before
}

// withLock calls f with the lock of the mutants' state held.
func (w *world) withLock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// status returns the status in the store itself, not changed by the mutant.
func (w *world) status(name string) driver.Status {
	d := w.store.Open()
	defer d.Close()
	st, _ := d.Status(context.Background(), name) // memlock's Status fails only on a closed driver
	return st
}

// A brokenDriver is a sound driver with hooks, through which a mutant breaks it. Hooks that are
// nil change nothing.
type brokenDriver struct {
	world   *world
	inner   *fault.Driver
	base    driver.Driver // the driver inside inner
	severed atomic.Bool   // cut off: no message arrives from the store

	info       func(driver.Info) driver.Info
	onAcquire  func(context.Context, driver.Request) (driver.Lease, error)
	onGrant    func(*lease) // changes a new lease; called with world.mu held
	onLease    func(*lease) // changes a lease by name and id
	onRenew    func(context.Context, []driver.Lease) []driver.Renewal
	onRelease  func(context.Context, *lease) error
	onHolder   func(context.Context, *lease, driver.Holder) error
	onStatus   func(context.Context, string) (driver.Status, error)
	onList     func(context.Context, string, func(driver.Status) bool) error
	onBreak    func(context.Context, string, string) error
	onWithdraw func(context.Context, string, string) error
	onClose    func() error
	onKill     func()
	onSever    func()
	onHeal     func()
	onDeliver  func() // after heal
}

// A lease is what brokenDrivers grant.
type lease struct {
	driver.Lease // of the sound driver; nil if the store does not know the lease
	b            *brokenDriver
	id           string // "": that of the request
	req          driver.Request
	grant        driver.Grant
	requestedAt  time.Time    // when Acquire was called
	grantedAt    time.Time    // when Acquire returned
	waited       bool         // the lease was not granted at once
	wanted       atomic.Bool  // another driver waits for the lock
	renewed      atomic.Int32 // calls of Renew that succeeded
	released     atomic.Int32 // calls of Release that succeeded, or are about to
}

func (b *brokenDriver) Info() driver.Info {
	info := b.inner.Info()
	info.MaxTTL = 24 * time.Hour // so that there is something to check
	if b.info != nil {
		info = b.info(info)
	}
	return info
}

func (b *brokenDriver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if b.world.setFlag("acquired "+req.Name+" "+req.ID, true) {
		b.world.t.Errorf("two calls of Acquire have the id %q", req.ID)
	}
	if b.onAcquire != nil {
		return b.onAcquire(ctx, req)
	}
	return b.acquire(ctx, req)
}

// acquire is the sound Acquire.
func (b *brokenDriver) acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return b.acquireAs(ctx, req, req)
}

// acquireAs acquires with a changed request; req is the original one.
func (b *brokenDriver) acquireAs(ctx context.Context, req, shaped driver.Request) (driver.Lease, error) {
	l := &lease{b: b, req: req, requestedAt: time.Now()}
	// A session tells by its own clock.
	if onLost := shaped.OnLost; onLost != nil && !b.isSession() {
		shaped.OnLost = func(err error) {
			if !b.severed.Load() {
				onLost(err)
			}
		}
	}
	onWanted := shaped.OnWanted
	shaped.OnWanted = func() {
		l.wanted.Store(true)
		if onWanted != nil {
			onWanted()
		}
	}
	inner, err := b.inner.Acquire(ctx, shaped)
	if err != nil {
		return nil, err
	}
	l.Lease, l.grant, l.grantedAt = inner, inner.Grant(), time.Now()
	l.waited = l.grantedAt.After(l.requestedAt)
	if b.onGrant != nil {
		b.world.mu.Lock()
		defer b.world.mu.Unlock()
		b.onGrant(l)
	}
	return l, nil
}

// fake returns a lease that the store does not know.
func (b *brokenDriver) fake(req driver.Request) driver.Lease {
	now := time.Now()
	return &lease{b: b, req: req, requestedAt: now, grantedAt: now, grant: driver.Grant{
		Token: driver.NextToken(0, now.Add(time.Minute)), Start: driver.Now(),
	}}
}

func (l *lease) Grant() driver.Grant { return l.grant }

func (l *lease) ID() string { return cmp.Or(l.id, l.req.ID) }

func (b *brokenDriver) Lease(name, id string, ttl time.Duration) driver.Lease {
	l := &lease{b: b, req: driver.Request{Name: name, ID: id, TTL: ttl}, Lease: b.inner.Lease(name, id, ttl)}
	if b.onLease != nil {
		b.onLease(l)
	}
	return l
}

func (l *lease) Release(ctx context.Context) error {
	if l.b.onRelease != nil {
		return l.b.onRelease(ctx, l)
	}
	return l.release(ctx)
}

// release is the sound Release.
func (l *lease) release(ctx context.Context) error {
	if l.Lease == nil {
		return nil
	}
	l.released.Add(1) // before others are granted
	err := l.Lease.Release(ctx)
	if err != nil {
		l.released.Add(-1)
	}
	return err
}

func (l *lease) SetHolder(ctx context.Context, h driver.Holder) error {
	if l.b.onHolder != nil {
		return l.b.onHolder(ctx, l, h)
	}
	return l.Lease.SetHolder(ctx, h)
}

// ended reports whether the lease's TTL is over.
func (l *lease) ended() bool { return !time.Now().Before(l.grantedAt.Add(l.req.TTL)) }

func (b *brokenDriver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	if b.onRenew != nil {
		return b.onRenew(ctx, due)
	}
	return b.renew(ctx, due)
}

// renew is the sound Renew.
func (b *brokenDriver) renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	if len(due) == 0 && b.inner.Info().RenewsAll {
		return b.inner.Renew(ctx, nil)
	}
	answers := make([]driver.Renewal, len(due))
	var inner []driver.Lease
	var at []int
	for i, l := range due {
		l := l.(*lease)
		if l.Lease == nil {
			answers[i].Start = driver.Now()
			continue
		}
		inner, at = append(inner, l.Lease), append(at, i)
	}
	for i, answer := range b.inner.Renew(ctx, inner) {
		answers[at[i]] = answer
		if answer.Err == nil {
			due[at[i]].(*lease).renewed.Add(1)
		}
	}
	return answers
}

// renewEach sets onRenew to a sound Renew whose answers are changed one by one.
func (b *brokenDriver) renewEach(change func(ctx context.Context, l *lease, sound driver.Renewal) driver.Renewal) {
	b.onRenew = func(ctx context.Context, due []driver.Lease) []driver.Renewal {
		answers := b.renew(ctx, due)
		for i, l := range due {
			answers[i] = change(ctx, l.(*lease), answers[i])
		}
		return answers
	}
}

func (b *brokenDriver) Close() error {
	if b.onClose != nil {
		return b.onClose()
	}
	return b.inner.Close()
}

func (b *brokenDriver) Status(ctx context.Context, name string) (driver.Status, error) {
	if b.onStatus != nil {
		return b.onStatus(ctx, name)
	}
	return b.inner.Status(ctx, name)
}

func (b *brokenDriver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	if b.onList != nil {
		return b.onList(ctx, prefix, yield)
	}
	return b.inner.List(ctx, prefix, yield)
}

func (b *brokenDriver) Break(ctx context.Context, name, id string) error {
	if b.onBreak != nil {
		return b.onBreak(ctx, name, id)
	}
	return b.inner.Break(ctx, name, id)
}

func (b *brokenDriver) Withdraw(ctx context.Context, name, id string) error {
	if b.onWithdraw != nil {
		return b.onWithdraw(ctx, name, id)
	}
	return b.inner.Withdraw(ctx, name, id)
}

func (b *brokenDriver) kill() {
	if k, ok := b.base.(interface{ kill() }); ok {
		k.kill()
	}
	if b.onKill != nil {
		b.onKill()
	}
}

func (b *brokenDriver) isSession() bool {
	_, ok := b.base.(*session)
	return ok
}

func (b *brokenDriver) sever() {
	b.inner.Sever(fault.Hang)
	b.severed.Store(true)
	if s, ok := b.base.(interface{ sever(bool) }); ok {
		s.sever(true)
	}
	if b.onSever != nil {
		b.onSever()
	}
}

func (b *brokenDriver) heal() {
	b.inner.Heal()
	b.severed.Store(false)
	if s, ok := b.base.(interface{ sever(bool) }); ok {
		s.sever(false)
	}
	if b.onHeal != nil {
		b.onHeal()
	}
}

// deliver ends a stall. A sound driver has sent nothing that it does not take back.
func (b *brokenDriver) deliver() {
	b.heal()
	if b.onDeliver != nil {
		b.onDeliver()
	}
}

// withhold keeps a grant back for a long time, as if nothing woke the waiter up until at last a
// timer did.
func withhold(ctx context.Context, l driver.Lease) (driver.Lease, error) {
	timer := time.NewTimer(2 * waitTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		return l, nil
	case <-ctx.Done():
		_ = l.Release(context.WithoutCancel(ctx))
		return nil, context.Cause(ctx)
	}
}
