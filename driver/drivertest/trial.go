package drivertest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// maxRounding is by how much a store may round a time: many count in whole milliseconds.
	maxRounding = time.Millisecond

	// waitTimeout is how long a case waits for an event that must happen, where another clause
	// checks how late it may be.
	waitTimeout = 10 * time.Second
)

// A trial is one run of one clause. Methods that can fail the case must be called from the
// case's own goroutine.
//
// The helpers of trial share a few words:
//
//   - Requests come from req, shortReq (its lease ends within the case), sharedReq, slotReq and
//     tokenBlockReq. All are for the trial's lockName.
//   - startAcquire begins a call of Acquire and returns it as a waiter. startWaiting does so
//     for a request that must wait, and returns once the store has it in its queue. settle
//     tells which of the two a waiter did: return, or enter the queue.
//   - waitReturned, mustBeGranted, mustFail and mustBeWaiting are about the outcome of a
//     waiter.
//   - acquire waits in the store; tryAcquire does not wait; acquireByPolling repeats
//     tryAcquire, and so finds out when a lock became free.
//   - waitForExpiry lets a lease lapse: it returns when the store does not show the holder any
//     more.
//   - rounds repeats a check that is worth something only if the machine was fast enough.
//   - slack is how late the store may be, wakeLimit how late a waiter may be woken, and
//     lateness how late this machine was so far.
type trial struct {
	testing.TB            // what the case reports to: in the tests of the suite, a recorder
	T          *testing.T // for the functions of the harness
	h          Harness
	info       driver.Info
	skipped    *string

	id       string // begins all ids of this trial; its first letters begin all names
	lockName string // the name of the lock that req asks for

	ctx context.Context // ends with the case
	// The driver that returned info; open returns it first.
	unusedDriver driver.Driver
	running      sync.WaitGroup // goroutines of the case
	maxLate      atomic.Int64   // the greatest lateness of a timer so far, in nanoseconds

	began    time.Time
	lossesMu sync.Mutex
	losses   []string // the calls of OnLost

	calls map[string]int // of Acquire, by the name and the id of the request
}

// runTrial runs the clause. If it could not be run, the reason is stored in skipped.
func (c clause) runTrial(report testing.TB, t *testing.T, h Harness, skipped *string) {
	if h.Fresh != nil {
		bubble := h.Bubble
		h = h.Fresh(t)
		h.Bubble = bubble
	}
	tr := &trial{TB: report, T: t, h: h.withDefaults(), skipped: skipped, began: time.Now(), calls: make(map[string]int)}
	tr.id = rand.Text() + "-" // a lock service refuses short ids, and those with other characters
	tr.lockName = tr.name("lock")
	if c.name == leakClause { // registered first, so that it runs after all other cleanups
		before := goroutines()
		tr.Cleanup(func() { tr.checkLeaks(before) })
	}
	tr.Cleanup(func() {
		if tr.Failed() {
			tr.Logf("%s: %s", c.name, c.why)
			tr.logLosses()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	tr.ctx = ctx
	tr.Cleanup(tr.join)
	tr.Cleanup(cancel)
	if !h.Bubble {
		tr.running.Go(tr.measureLateness)
	}
	tr.unusedDriver = tr.open()
	tr.info = tr.unusedDriver.Info()
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

// measureLateness records how late timers are, until the case ends.
func (t *trial) measureLateness() {
	const pause = 2 * time.Millisecond
	for began := time.Now(); t.ctx.Err() == nil; began = time.Now() {
		time.Sleep(pause) // a driver's timers are no more exact
		t.maxLate.Store(max(t.maxLate.Load(), int64(time.Since(began)-pause)))
	}
}

// lateness returns the greatest lateness of this process's timers so far. That much lateness is
// due to the machine and not to the driver.
func (t *trial) lateness() time.Duration { return time.Duration(t.maxLate.Load()) }

// slack returns how late the store may be: Slack, and ten times the lateness of the machine,
// for the messages between driver and store.
func (t *trial) slack() time.Duration { return t.h.Slack + 10*t.lateness() }

// await receives a value, or the close of the channel. It returns false if nothing comes within the
// time and the slack, which grows while the machine is late.
func await[T any](t *trial, ch <-chan T, within time.Duration) (got T, ok bool) {
	for began := time.Now(); ; {
		left := within + t.slack() - time.Since(began)
		select {
		case got = <-ch:
			return got, true
		default:
		}
		if left <= 0 {
			return got, false
		}
		select {
		case got = <-ch:
			return got, true
		case <-time.After(left):
		}
	}
}

// join waits for the case's goroutines after the drivers were closed and the contexts
// cancelled.
func (t *trial) join() {
	done := make(chan struct{})
	go func() { t.running.Wait(); close(done) }()
	if _, ok := await(t, done, waitTimeout); !ok {
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
	if d := t.unusedDriver; d != nil {
		t.unusedDriver = nil
		return d
	}
	d := t.h.Open(t.T)
	if d == nil {
		t.Fatalf("Harness.Open = nil")
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// name returns a name that only this trial uses.
func (t *trial) name(s string) string { return t.id[:10] + " " + s }

// req returns a plain request for the trial's lock, with a lease that outlives the case.
func (t *trial) req(id string) driver.Request {
	return driver.Request{Name: t.lockName, ID: t.id + strings.ReplaceAll(id, " ", "-"), TTL: t.longTTL()}
}

// longTTL returns the TTL of leases that outlive the case.
func (t *trial) longTTL() time.Duration {
	ttl := max(30*time.Second, 10*t.h.TTL)
	if most := t.info.MaxTTL; most > 0 {
		ttl = min(ttl, most)
	}
	return ttl
}

// shortReq is like req, with a lease whose end the case can wait for.
func (t *trial) shortReq(id string) driver.Request {
	req := t.req(id)
	req.TTL = t.h.TTL
	return req
}

// boundedContext returns a context for a call that must not hang for ever.
func (t *trial) boundedContext() context.Context {
	hung := errors.New("drivertest: no answer for a long time")
	ctx, cancel := context.WithTimeoutCause(t.ctx, 3*waitTimeout+5*t.h.TTL, hung)
	t.Cleanup(cancel)
	return ctx
}

// acquire takes a lease that must be granted, if necessary after a short lease has ended.
func (t *trial) acquire(d driver.Driver, req driver.Request) driver.Lease {
	t.Helper()
	l, err := t.answer(d, req, t.h.TTL+waitTimeout)
	t.mustAnswer(err, nil, "Acquire")
	return l
}

// answer returns the result of an Acquire that returns in time. A driver may leave it to the core
// to ask a store again that has not answered.
func (t *trial) answer(d driver.Driver, req driver.Request, within time.Duration) (driver.Lease, error) {
	t.Helper()
	var w *waiter
	err := t.retryIfLate(func() error {
		w = t.startAcquire(d, req)
		t.waitReturned(w, within)
		return w.err
	})
	return w.lease, err
}

// retryIfLate calls call, and repeats it for up to waitTimeout while it returns ErrUnavailable
// and the machine itself is late: then a missing answer proves nothing.
func (t *trial) retryIfLate(call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if !errors.Is(err, driver.ErrUnavailable) || t.lateness() <= driver.CancelTimeout ||
			time.Since(began) >= waitTimeout {
			return err
		}
	}
}

// tryAcquire requests a lease without waiting.
func (t *trial) tryAcquire(d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	return t.answer(d, req, waitTimeout)
}

// mustAnswer checks that an answer matches an error, or is nil.
func (t *trial) mustAnswer(got, want error, what string, args ...any) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s = %v, want %v", fmt.Sprintf(what, args...), got, want)
	}
}

// mustBeInTime checks that something was late by no more than the slack.
func (t *trial) mustBeInTime(late time.Duration, what string, args ...any) {
	t.Helper()
	if late > t.slack() {
		t.Errorf("%s: %v late, want at most %v", fmt.Sprintf(what, args...), late, t.slack())
	}
}

// mustBeHeld checks that req is refused because the lock is held.
func (t *trial) mustBeHeld(d driver.Driver, req driver.Request, when string) {
	t.Helper()
	_, err := t.tryAcquire(d, req)
	t.mustAnswer(err, driver.ErrHeld, "Acquire with NoWait %s", when)
}

// mustBeFree checks that the trial's lock is granted at once.
func (t *trial) mustBeFree(d driver.Driver, when string) {
	t.Helper()
	if err := t.checkFree(d); err != nil {
		t.Fatalf("%v, %s", err, when)
	}
}

// mustBeWithdrawn checks that nothing is left of a request whose Acquire took that long to return
// after it was given up. Nothing may be left at once; or within waitTimeout, where the store took
// so long to answer that the driver may not have waited for it: it may take as long again for each
// step of the withdrawal. The function check returns an error while something is left.
func (t *trial) mustBeWithdrawn(took time.Duration, check func() error) {
	t.Helper()
	if took > min(t.wakeLimit(), driver.CancelTimeout/2) {
		t.eventually("withdrawal by a store that is slow to answer", waitTimeout, check)
		return
	}
	if err := check(); err != nil {
		t.Fatalf("%v after the request was given up, Acquire has returned, and %v", took, err)
	}
}

// checkFree returns nil if the trial's lock is granted at once.
func (t *trial) checkFree(d driver.Driver) error {
	t.Helper()
	l, err := t.tryAcquire(d, t.req("probe"))
	if err != nil {
		return fmt.Errorf("Acquire with NoWait = %w, want a lease", err)
	}
	t.release(l)
	return nil
}

// release releases a lease that must still exist.
func (t *trial) release(l driver.Lease) {
	t.Helper()
	t.mustAnswer(t.releaseAnswer(t.boundedContext(), l), nil, "Release")
}

// releaseAnswer releases a lease. ErrLost is no error after a call that went unanswered, and may
// have freed the lease.
func (t *trial) releaseAnswer(ctx context.Context, l driver.Lease) error {
	calls := 0
	err := t.retryIfLate(func() error {
		calls++
		return l.Release(ctx)
	})
	if calls > 1 && errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// renew renews leases of d. It returns one answer for each.
func (t *trial) renew(d driver.Driver, due ...driver.Lease) []driver.Renewal {
	t.Helper()
	var got []driver.Renewal
	_ = t.retryIfLate(func() error { // the caller judges each answer
		got = d.Renew(t.boundedContext(), due)
		if len(got) != len(due) {
			t.Fatalf("Renew of %d leases gave %d answers, want one each", len(due), len(got))
		}
		if i := slices.IndexFunc(got,
			func(r driver.Renewal) bool { return errors.Is(r.Err, driver.ErrUnavailable) }); i >= 0 {
			return got[i].Err
		}
		return nil
	})
	return got
}

// renewAll renews all leases of d, and returns the start of the answer.
func (t *trial) renewAll(d driver.Driver) (start driver.Instant) {
	t.Helper()
	err := t.retryIfLate(func() error {
		got := d.Renew(t.boundedContext(), nil)
		if len(got) != 1 {
			t.Fatalf("Renew of all leases gave %d answers, want one", len(got))
		}
		start = got[0].Start
		return got[0].Err
	})
	t.mustAnswer(err, nil, "Renew of all leases")
	return start
}

// mustBeLost checks that a renewal is refused for good.
func (t *trial) mustBeLost(d driver.Driver, l driver.Lease, when string) {
	t.Helper()
	t.mustAnswer(t.renew(d, l)[0].Err, driver.ErrLost, "Renew %s", when)
}

// status returns the status of the trial's lock.
func (t *trial) status(d driver.Driver) driver.Status {
	t.Helper()
	return t.statusOf(d, t.lockName)
}

func (t *trial) statusOf(d driver.Driver, name string) driver.Status {
	t.Helper()
	var st driver.Status
	err := t.retryIfLate(func() (err error) {
		st, err = d.Status(t.boundedContext(), name)
		return err
	})
	t.mustAnswer(err, nil, "Status")
	return st
}

// recordLosses sets req.OnLost, and returns a channel with the errors that it is called with.
func recordLosses(req *driver.Request) <-chan error {
	losses := make(chan error, 2) // one more than is right
	req.OnLost = func(err error) {
		select {
		case losses <- err:
		default:
		}
	}
	return losses
}

// leaseEnd returns the time until which the holder of a fresh lease may rely on it.
func leaseEnd(l driver.Lease, req driver.Request) driver.Instant {
	return l.Grant().Start.Add(leaseLength(l, req))
}

// leaseLength returns the length of a lease: that of the grant, or that of the request.
func leaseLength(l driver.Lease, req driver.Request) time.Duration {
	return cmp.Or(l.Grant().TTL, req.TTL)
}

// wakeLimit is how soon a waiter must be woken by a release.
func (t *trial) wakeLimit() time.Duration { return t.h.Slack / 10 }

// pause is the time between two checks of a state that can't be waited for.
func (t *trial) pause() time.Duration { return min(t.h.Slack/5, max(t.h.TTL/20, time.Millisecond)) }

// sleep lets time pass, in a bubble at once. Cases sleep so that leases lapse or get old, and
// between two checks of a state that can't be waited for. They never sleep in the hope that
// something has happened by then.
func (t *trial) sleep(d time.Duration) { time.Sleep(d) }

// acquireByPolling repeats tryAcquire until the lease is granted, which must be within the
// given time. It returns the lease and the time of the grant.
func (t *trial) acquireByPolling(d driver.Driver, req driver.Request,
	within time.Duration) (driver.Lease, driver.Instant) {
	t.Helper()
	var l driver.Lease
	t.eventually("lease", within, func() (err error) {
		l, err = t.tryAcquire(d, req)
		return err
	})
	return l, driver.Now()
}

// waitForExpiry lets the lease of a shortReq lapse by the store's clock. The lease was granted just
// now and is not renewed. It returns when Status does not show the holder any more, or after
// waitTimeout.
func (t *trial) waitForExpiry(d driver.Driver, l driver.Lease) {
	t.Helper()
	t.sleep(t.h.TTL)
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); t.sleep(t.pause()) {
		if !slices.ContainsFunc(t.status(d).Holders, func(h driver.Holding) bool { return h.ID == l.ID() }) {
			return
		}
	}
}

// eventually repeats check until it succeeds, and fails the case if that takes longer than
// within.
func (t *trial) eventually(what string, within time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v: %v", what, within, err)
		}
		t.sleep(t.pause())
	}
}

// rounds runs a check whose outcome depends on timing, on a new lock name in each round, until
// round reports that it was in time. From the fourth round on, each has twice the TTL of the
// one before it, up to MaxTTL. A machine that is too slow in all rounds proves nothing: the
// case is then skipped.
func (t *trial) rounds(round func() (inTime bool)) {
	t.Helper()
	ttl := t.h.TTL
	defer func() { t.h.TTL = ttl }()
	for i := range 8 {
		t.lockName = t.name(fmt.Sprint("round ", i))
		if round() {
			return
		}
		if i >= 2 && (t.info.MaxTTL == 0 || 2*t.h.TTL <= t.info.MaxTTL) {
			t.h.TTL *= 2
		}
	}
	t.skip("the machine is too slow for a TTL of %v: nothing happened in time", t.h.TTL)
}

// A waiter is a call of Acquire in a goroutine of its own. Its results are set once done is
// closed.
type waiter struct {
	driver driver.Driver
	req    driver.Request
	cancel context.CancelCauseFunc

	done         chan struct{}
	lease        driver.Lease
	err          error
	returned     driver.Instant // when it returned
	returnedTime time.Time      // the same, by the plain clock, which is exact in a bubble
}

// startAcquire calls Acquire in a goroutine. No two calls may have the same id, so if the case has
// used it before, the id gets a suffix.
func (t *trial) startAcquire(d driver.Driver, req driver.Request) *waiter {
	return t.startAcquireWith(t.boundedContext(), d, req)
}

func (t *trial) startAcquireWith(ctx context.Context, d driver.Driver, req driver.Request) *waiter {
	ctx, cancel := context.WithCancelCause(ctx)
	used := req.Name + "\n" + req.ID
	if t.calls[used]++; t.calls[used] > 1 {
		req.ID += fmt.Sprint("-", t.calls[used])
	}
	req.OnLost = t.noteLoss(req)
	outlives := req.TTL >= t.longTTL()
	w := &waiter{driver: d, req: req, cancel: cancel, done: make(chan struct{})}
	t.running.Go(func() {
		defer cancel(nil)
		defer close(w.done)
		w.lease, w.err = d.Acquire(ctx, req)
		w.returned, w.returnedTime = driver.Now(), time.Now()
		if w.err == nil && w.lease == nil {
			w.err = errors.New("drivertest: neither a lease nor an error")
		}
		if w.err == nil && outlives {
			t.keepUp(d, w.lease)
		}
	})
	return w
}

// keepUp starts to renew a lease that was to outlive the case, if the store granted less time than
// that, as a session does. Else it would depend on the machine's speed whether the case is over in
// time. It ends with the lease or the case.
func (t *trial) keepUp(d driver.Driver, l driver.Lease) {
	ttl := l.Grant().TTL
	if ttl <= 0 || ttl >= waitTimeout {
		return
	}
	t.running.Go(func() {
		ticker := time.NewTicker(ttl / 4)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-t.ctx.Done():
				return
			}
			if got := d.Renew(t.ctx, []driver.Lease{l}); len(got) != 1 || errors.Is(got[0].Err, driver.ErrLost) {
				return
			}
		}
	})
}

// noteLoss returns an OnLost for req that also notes the loss. A case that fails prints the
// losses: an unexpected grant is not wrong if another holder was told before that it had lost the
// lock.
func (t *trial) noteLoss(req driver.Request) func(error) {
	return func(err error) {
		t.lossesMu.Lock()
		t.losses = append(t.losses, fmt.Sprintf("%q was told, %v after the case began: %v", req.ID, time.Since(t.began), err))
		t.lossesMu.Unlock()
		if req.OnLost != nil {
			req.OnLost(err)
		}
	}
}

// logLosses prints which holders were told that they had lost their leases.
func (t *trial) logLosses() {
	t.lossesMu.Lock()
	defer t.lossesMu.Unlock()
	for _, loss := range t.losses {
		t.Logf("%s", loss)
	}
}

// startWaiting is startAcquire for a request that must wait: it returns when the store has it
// in its queue.
func (t *trial) startWaiting(d driver.Driver, req driver.Request) *waiter {
	t.Helper()
	w := t.startAcquire(d, req)
	if t.settle(w) {
		t.Fatalf("Acquire of a lock that is held = %v, %v; want it to wait", w.lease, w.err)
	}
	return w
}

// settle waits until w has returned, or is in the store's queue, and reports whether it has
// returned.
func (t *trial) settle(w *waiter) (returned bool) {
	t.Helper()
	if t.h.Bubble {
		synctest.Wait()
	}
	for deadline := time.Now().Add(waitTimeout); ; {
		select {
		case <-w.done:
			return true
		default:
		}
		if t.h.Bubble {
			return false
		}
		st := t.statusOf(w.driver, w.req.Name)
		if slices.ContainsFunc(st.Waiters, func(other driver.Waiting) bool { return other.ID == w.req.ID }) {
			return false
		}
		if time.Now().After(deadline) {
			t.Fatalf("Status shows no waiter %q after %v: %+v", w.req.ID, waitTimeout, st)
		}
		t.sleep(time.Millisecond) // the store does not tell when a waiter enters its queue
	}
}

// waitReturned waits for w to return.
func (t *trial) waitReturned(w *waiter, within time.Duration) {
	t.Helper()
	if _, ok := await(t, w.done, within); !ok {
		t.Fatalf("Acquire did not return within %v", within)
	}
}

// mustBeGranted returns the lease of a waiter that must get one.
func (t *trial) mustBeGranted(w *waiter) driver.Lease {
	t.Helper()
	return t.mustBeGrantedWithin(w, waitTimeout)
}

func (t *trial) mustBeGrantedWithin(w *waiter, within time.Duration) driver.Lease {
	t.Helper()
	t.waitReturned(w, within)
	t.mustAnswer(w.err, nil, "Acquire")
	return w.lease
}

// mustFail returns the error of a waiter that must fail.
func (t *trial) mustFail(w *waiter) error {
	t.Helper()
	t.waitReturned(w, waitTimeout)
	if w.err == nil {
		t.Fatalf("Acquire gave a lease, want an error")
	}
	return w.err
}

// mustBeWaiting checks that w has not returned.
func (t *trial) mustBeWaiting(w *waiter, when string) {
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
