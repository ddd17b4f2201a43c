package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
)

// A tb is the part of [testing.TB] that cases report to. The tests of the suite itself put a recorder there, to see a
// clause fail without failing.
type tb interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	SkipNow()
}

const (
	// jitter is what a store may round: many count in whole milliseconds.
	jitter = time.Millisecond

	// patience is how long a case waits for what must happen, where its lateness is another clause's matter.
	patience = 10 * time.Second
)

// A trial is one run of one clause. Its methods that can fail the case are for the case's own goroutine.
type trial struct {
	tb
	T       *testing.T // for the functions of the harness
	h       Harness
	info    driver.Info
	skipped *string

	id    string // begins all names and owners of this trial
	lock  string // the name that req asks for
	probe int    // owners used up by mustBeFree

	ctx     context.Context // ends with the case
	spare   driver.Driver   // the one that was asked for its Info, until open hands it out
	running sync.WaitGroup  // goroutines of the case
	late    atomic.Int64    // by how much a timer was late, at the most
}

// try runs the clause. A reason for which it could not be run goes to skipped.
func (c clause) try(report tb, t *testing.T, h Harness, skipped *string) {
	if h.Fresh != nil {
		bubble := h.Bubble
		h = h.Fresh(t)
		h.Bubble = bubble
	}
	tr := &trial{tb: report, T: t, h: h.withDefaults(), skipped: skipped}
	tr.id = rand.Text()[:10] + " "
	tr.lock = tr.name("lock")
	if c.name == leakClause { // registered first, so that it runs when everything else is cleaned up
		before := goroutines()
		tr.Cleanup(func() { tr.checkLeaks(before) })
	}
	tr.Cleanup(func() {
		if tr.Failed() {
			tr.Logf("%s: %s", c.name, c.why)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	tr.ctx = ctx
	tr.Cleanup(tr.join)
	tr.Cleanup(cancel)
	if !h.Bubble {
		tr.running.Go(tr.watchMachine)
	}
	tr.spare = tr.open()
	tr.info = tr.spare.Info()
	if tr.h.TTL < tr.info.MinTTL {
		tr.Fatalf("Harness.TTL is %v, below the driver's least of %v", tr.h.TTL, tr.info.MinTTL)
	}
	if c.gate != nil {
		if why := c.gate(tr.info, tr.h); why != "" {
			tr.skip("%s", why)
		}
	}
	c.run(tr)
}

// watchMachine notes by how much timers are late, until the case ends.
func (t *trial) watchMachine() {
	const pause = 2 * time.Millisecond
	for began := time.Now(); t.ctx.Err() == nil; began = time.Now() {
		time.Sleep(pause) // no timer of a driver is any more exact
		t.late.Store(max(t.late.Load(), int64(time.Since(began)-pause)))
	}
}

// lateness is by how much timers of this process were late so far, at the most: so much of a
// lateness is the machine's and not the driver's.
func (t *trial) lateness() time.Duration { return time.Duration(t.late.Load()) }

// slack is how late the store may be: Slack, and on a machine that is late what a few words
// between driver and store take there.
func (t *trial) slack() time.Duration { return t.h.Slack + 10*t.lateness() }

// closedSoon reports whether a channel is closed within a TTL and the slack, which grows while the
// machine is late.
func (t *trial) closedSoon(ch <-chan struct{}) bool {
	for began := time.Now(); ; {
		left := t.h.TTL + t.slack() - time.Since(began)
		if left <= 0 {
			return false
		}
		timer := time.NewTimer(left)
		select {
		case <-ch:
			timer.Stop()
			return true
		case <-timer.C:
		}
	}
}

// join waits for the case's goroutines, when the drivers are closed and the contexts done.
func (t *trial) join() {
	done := make(chan struct{})
	go func() { t.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Errorf("calls do not return, although their contexts are done and their drivers closed")
	}
}

func (h Harness) withDefaults() Harness {
	ttl, slack := 200*time.Millisecond, time.Second
	if h.Bubble {
		ttl, slack = time.Second, 50*time.Millisecond
	}
	h.TTL = cmp.Or(h.TTL, ttl)
	h.Slack = cmp.Or(h.Slack, slack)
	return h
}

// skip ends the case because it can't be run.
func (t *trial) skip(format string, args ...any) {
	*t.skipped = fmt.Sprintf(format, args...)
	t.Logf("%s", *t.skipped)
	t.SkipNow()
}

// open returns a driver of its own on the case's store: another process.
func (t *trial) open() driver.Driver {
	t.Helper()
	if d := t.spare; d != nil {
		t.spare = nil
		return d
	}
	d := t.h.Open(t.T)
	if d == nil {
		t.Fatalf("Harness.Open = nil")
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// name returns a name of this trial's own.
func (t *trial) name(s string) string { return t.id + s }

// req returns a plain request for the trial's lock, with a lease that outlives the case.
func (t *trial) req(owner string) driver.Request {
	req := driver.Request{Name: t.lock, Owner: t.id + owner, TTL: max(30*time.Second, 10*t.h.TTL)}
	if most := t.info.MaxTTL; most > 0 {
		req.TTL = min(req.TTL, most)
	}
	return req
}

// short is req with a lease whose end the case can wait for.
func (t *trial) short(owner string) driver.Request {
	req := t.req(owner)
	req.TTL = t.h.TTL
	return req
}

// bounded returns a context for a call that must not take for ever.
func (t *trial) bounded() context.Context {
	hung := errors.New("drivertest: no answer for a long time")
	ctx, cancel := context.WithTimeoutCause(t.ctx, 3*patience+5*t.h.TTL, hung)
	t.Cleanup(cancel)
	return ctx
}

// acquire takes a lease that must be granted, if need be after the end of a short one.
func (t *trial) acquire(d driver.Driver, req driver.Request) driver.Lease {
	t.Helper()
	return t.grantedWithin(t.begin(d, req), t.h.TTL+patience)
}

// insist makes a call again that the store did not answer in time, on a machine that is late
// itself: that proves nothing, or only after a while.
func (t *trial) insist(call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if !errors.Is(err, driver.ErrUnavailable) || t.lateness() <= driver.CancelTimeout || time.Since(began) >= patience {
			return err
		}
	}
}

// try asks for a lease without waiting.
func (t *trial) try(d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	var w *wait
	err := t.insist(func() error {
		w = t.begin(d, req)
		t.finish(w, patience)
		return w.err
	})
	return w.lease, err
}

// mustBeHeld checks that req is refused at present.
func (t *trial) mustBeHeld(d driver.Driver, req driver.Request, when string) {
	t.Helper()
	if _, err := t.try(d, req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire with NoWait %s = %v, want ErrHeld", when, err)
	}
}

// mustBeFree checks that the trial's lock can be had at once.
func (t *trial) mustBeFree(d driver.Driver, when string) {
	t.Helper()
	if err := t.free(d); err != nil {
		t.Fatalf("%v, %s", err, when)
	}
}

// withdrawn checks that nothing is left of a request that was given up at some time: at once; or soon, where the store took so long to
// answer that the driver may not have waited for it.
func (t *trial) withdrawn(w *wait, givenUp time.Time, look func() error) {
	t.Helper()
	if w.clock.Sub(givenUp) > min(t.prompt(), driver.CancelTimeout/2) {
		t.eventually("withdrawal by a store that is slow to answer", t.slack(), look)
		return
	}
	if err := look(); err != nil {
		t.Fatalf("after Acquire returned %v: %v", w.err, err)
	}
}

// free returns nil if the trial's lock can be had at once.
func (t *trial) free(d driver.Driver) error {
	t.Helper()
	t.probe++
	l, err := t.try(d, t.req(fmt.Sprint("probe", t.probe)))
	if err != nil {
		return fmt.Errorf("Acquire with NoWait = %w, want a lease", err)
	}
	t.release(l)
	return nil
}

// release gives a lease up that must still be there.
func (t *trial) release(l driver.Lease) {
	t.Helper()
	calls := 0
	err := t.insist(func() error {
		calls++
		return l.Release(t.bounded())
	})
	freed := calls > 1 && errors.Is(err, driver.ErrLost) // by one that went unanswered
	if err != nil && !freed {
		t.Fatalf("Release = %v, want nil", err)
	}
}

// renew renews leases of d.
func (t *trial) renew(d driver.Driver, due ...driver.Lease) []driver.Renewal {
	t.Helper()
	var got []driver.Renewal
	_ = t.insist(func() error { // each answer is the caller's to judge
		got = d.Renew(t.bounded(), due)
		if len(got) != len(due) {
			t.Fatalf("Renew of %d leases gave %d answers, want one each", len(due), len(got))
		}
		if i := slices.IndexFunc(got, func(r driver.Renewal) bool { return errors.Is(r.Err, driver.ErrUnavailable) }); i >= 0 {
			return got[i].Err
		}
		return nil
	})
	return got
}

// mustBeLost checks that a renewal is refused for good.
func (t *trial) mustBeLost(d driver.Driver, l driver.Lease, when string) {
	t.Helper()
	if got := t.renew(d, l)[0]; !errors.Is(got.Err, driver.ErrLost) {
		t.Fatalf("Renew %s = %v, want ErrLost", when, got.Err)
	}
}

// status asks for the status of the trial's lock.
func (t *trial) status(d driver.Driver) driver.Status {
	t.Helper()
	return t.statusOf(d, t.lock)
}

func (t *trial) statusOf(d driver.Driver, name string) driver.Status {
	t.Helper()
	in := t.inspector(d)
	var st driver.Status
	err := t.insist(func() (err error) {
		st, err = in.Status(t.bounded(), name)
		return err
	})
	if err != nil {
		t.Fatalf("Status = %v", err)
	}
	return st
}

func (t *trial) inspector(d driver.Driver) driver.Inspector {
	t.Helper()
	in, ok := d.(driver.Inspector)
	if !ok {
		t.Fatalf("%T is no driver.Inspector; every driver is", d)
	}
	return in
}

// losses has the driver tell of the loss of the lease that req asks for, on a channel.
func losses(req *driver.Request) <-chan error {
	told := make(chan error, 2) // one more than is right
	req.OnLost = func(err error) {
		select {
		case told <- err:
		default:
		}
	}
	return told
}

// mustTell checks that a loss is told within a time.
func (t *trial) mustTell(told <-chan error, within time.Duration, when string) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-told:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost %s was called with %v, want ErrLost", when, err)
		}
	case <-timer.C:
		t.Errorf("OnLost was not called within %v %s", within, when)
	}
}

// ends returns when the holder of a fresh lease must stop to rely on it.
func ends(l driver.Lease, req driver.Request) driver.Instant {
	return l.Grant().Start.Add(length(l, req))
}

// length is the length of a lease.
func length(l driver.Lease, req driver.Request) time.Duration {
	return cmp.Or(l.Grant().TTL, req.TTL)
}

// prompt is how soon a waiter must be told of a release.
func (t *trial) prompt() time.Duration { return t.h.Slack / 10 }

// poll is the pause between two looks at what can't be waited for.
func (t *trial) poll() time.Duration { return min(t.h.Slack/5, max(t.h.TTL/20, time.Millisecond)) }

// sleep lets time pass, in a bubble at once. Cases sleep so that leases lapse or get old, and between two looks at what
// can't be waited for; never in the hope that something has happened by then.
func (t *trial) sleep(d time.Duration) { time.Sleep(d) }

// takes tries, without waiting in the store, until it is granted, and returns when that was.
func (t *trial) takes(d driver.Driver, req driver.Request, within time.Duration) (driver.Lease, driver.Instant) {
	t.Helper()
	var l driver.Lease
	t.eventually("lease", within, func() (err error) {
		l, err = t.try(d, req)
		return err
	})
	return l, driver.Now()
}

// lapse lets the lease of req, granted just now and not renewed, come to its end by the store's clock.
func (t *trial) lapse(d driver.Driver, req driver.Request) {
	t.Helper()
	t.sleep(req.TTL)
	for late := time.Now().Add(patience); time.Now().Before(late); t.sleep(t.poll()) {
		if !slices.ContainsFunc(t.status(d).Holders, func(h driver.Holding) bool { return h.Owner == req.Owner }) {
			return
		}
	}
}

// eventually repeats try until it succeeds.
func (t *trial) eventually(what string, within time.Duration, try func() error) {
	t.Helper()
	for late := time.Now().Add(within); ; {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("no %s within %v: %v", what, within, err)
		}
		t.sleep(t.poll())
	}
}

// rounds runs a round whose outcome depends on being in time, on a new name each time, until it
// says that it was. After three rounds each has twice the TTL of the one before it. A machine that
// is too slow every time proves nothing: the case is skipped then.
func (t *trial) rounds(round func() (inTime bool)) {
	t.Helper()
	ttl := t.h.TTL
	defer func() { t.h.TTL = ttl }()
	for i := range 8 {
		t.lock = t.name(fmt.Sprint("round ", i))
		if round() {
			return
		}
		if i >= 2 && (t.info.MaxTTL == 0 || 2*t.h.TTL <= t.info.MaxTTL) {
			t.h.TTL *= 2
		}
	}
	t.skip("the machine is too slow for a TTL of %v: nothing happened in time", t.h.TTL)
}

// A wait is an Acquire in a goroutine of its own. Its results are set once done is closed.
type wait struct {
	driver driver.Driver
	req    driver.Request
	cancel context.CancelCauseFunc

	done  chan struct{}
	lease driver.Lease
	err   error
	at    driver.Instant // when it returned
	clock time.Time      // the same, by the plain clock, which is exact in a bubble
}

// begin calls Acquire in a goroutine.
func (t *trial) begin(d driver.Driver, req driver.Request) *wait {
	return t.beginWith(t.bounded(), d, req)
}

func (t *trial) beginWith(ctx context.Context, d driver.Driver, req driver.Request) *wait {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &wait{driver: d, req: req, cancel: cancel, done: make(chan struct{})}
	t.running.Go(func() {
		defer cancel(nil)
		defer close(w.done)
		w.lease, w.err = d.Acquire(ctx, req)
		w.at, w.clock = driver.Now(), time.Now()
		if w.err == nil && w.lease == nil {
			w.err = errors.New("drivertest: neither a lease nor an error")
		}
	})
	return w
}

// waiting is begin for a request that must wait: it returns when the store has it in its queue.
func (t *trial) waiting(d driver.Driver, req driver.Request) *wait {
	t.Helper()
	w := t.begin(d, req)
	if t.settle(w) {
		t.Fatalf("Acquire of a lock that is held = %v, %v; want it to wait", w.lease, w.err)
	}
	return w
}

// settle returns when w has returned, or is in the store's queue, and reports which.
func (t *trial) settle(w *wait) (returned bool) {
	t.Helper()
	if t.h.Bubble {
		synctest.Wait()
	}
	for late := time.Now().Add(patience); ; {
		select {
		case <-w.done:
			return true
		default:
		}
		if t.h.Bubble {
			return false
		}
		st := t.statusOf(w.driver, w.req.Name)
		if slices.ContainsFunc(st.Waiters, func(other driver.Waiting) bool { return other.Owner == w.req.Owner }) {
			return false
		}
		if time.Now().After(late) {
			t.Fatalf("Status shows no waiter %q after %v: %+v", w.req.Owner, patience, st)
		}
		t.sleep(time.Millisecond) // a waiter in the store tells nobody that it waits
	}
}

// finish waits for w to return.
func (t *trial) finish(w *wait, within time.Duration) {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		t.Fatalf("Acquire did not return within %v", within)
	}
}

// granted returns the lease of a wait that must end with one.
func (t *trial) granted(w *wait) driver.Lease {
	t.Helper()
	return t.grantedWithin(w, patience)
}

func (t *trial) grantedWithin(w *wait, within time.Duration) driver.Lease {
	t.Helper()
	t.finish(w, within)
	if w.err != nil {
		t.Fatalf("Acquire = %v, want a lease", w.err)
	}
	return w.lease
}

// failed returns the error of a wait that must end with one.
func (t *trial) failed(w *wait) error {
	t.Helper()
	t.finish(w, patience)
	if w.err == nil {
		t.Fatalf("Acquire gave a lease, want an error")
	}
	return w.err
}

// stillWaiting checks that w has not returned.
func (t *trial) stillWaiting(w *wait, when string) {
	t.Helper()
	if t.h.Bubble {
		synctest.Wait()
	}
	select {
	case <-w.done:
		t.Fatalf("Acquire %s returned %v, %v; want it to wait", when, w.lease, w.err)
	default:
	}
}
