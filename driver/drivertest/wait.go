package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

// errGone is the cause with which cases cancel waiters. No context has this text of its own.
const errGone driver.Sentinel = "drivertest: the caller went away"

func tryClauses() []clause {
	return []clause{
		{
			name: "Try/Held",
			why:  "with NoWait a lock that is taken is answered with ErrHeld, and at once: callers go on to other work",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.acquire(d1, t.req("a"))
				var took time.Duration
				for i := range 8 { // a busy machine delays one, a driver that waits all
					start := time.Now()
					t.mustBeHeld(d2, t.req(fmt.Sprint("b", i)), "of a lock that is held")
					if took = time.Since(start); took <= t.slack() {
						return
					}
				}
				t.Errorf("Acquire with NoWait took %v", took)
			},
		},
		{
			name: "Try/Free",
			why:  "NoWait bounds the wait, not the effort: what is free is granted",
			run: func(t *trial) {
				d := t.open()
				t.mustBeFree(d, "of a lock that was never used")
				t.mustBeFree(d, "of a lock that was released")
			},
		},
	}
}

func waitClauses() []clause {
	return []clause{
		{
			name: "Wait/Release",
			why:  "a release wakes the next waiter by the store's own means, not after the sleep of a polling loop",
			run:  wakesOnRelease,
		},
		{
			name: "Wait/TellsHeld",
			why: "others wait behind this request, in its process: if their time is over first, they learn that the lock " +
				"is held",
			run: tellsHeld,
		},
		{
			name: "Wait/Expiry",
			why:  "a waiter is granted when the holder's lease ends: the notice of a release never comes from the dead",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.shortReq("a")
				l := t.acquire(d1, req)
				since := driver.Now()
				w := t.startAcquire(d2, t.req("b"))
				t.mustBeGrantedWithin(w, leaseLength(l, req)+waitTimeout)
				t.mustBeInTime(w.returned.Sub(since)-leaseLength(l, req), "grant after the end of the holder's lease")
			},
		},
		{
			name: "Wait/KilledHolder",
			why:  "kill -9 of the holder costs the waiters one TTL, not for ever",
			gate: canKill(),
			run: func(t *trial) {
				d := t.open()
				t.rounds(func() bool {
					req := t.shortReq("a")
					kill := t.h.Kill(t.T, req)
					w := t.startAcquire(d, t.req("b"))
					lapsed := t.settle(w) // true if the holder was late to renew
					kill()
					if lapsed {
						t.release(t.mustBeGranted(w))
						return false
					}
					killed := driver.Now()
					// A session may have a TTL of its own.
					l := t.mustBeGrantedWithin(w, req.TTL+2*waitTimeout)
					ttl := req.TTL
					if t.info.Tenure == driver.TenureSession {
						ttl = max(ttl, l.Grant().TTL)
					}
					t.mustBeInTime(w.returned.Sub(killed)-ttl, "grant a TTL after the holder was killed")
					return true
				})
			},
		},
	}
}

// wakesOnRelease measures several hand-overs. Two that are quick show that the store wakes waiters:
// the release comes just after the waiter's request, and after the first round just after a tick of
// its driver's loop, so a polling loop needs nearly a period. A busy machine delays the others. The
// limit also allows for two cycles of an uncontended lock, as slow as the slowest one was.
func wakesOnRelease(t *trial) {
	d1, d2 := t.open(), t.open()
	var took, cycles []time.Duration
	for i := range 5 {
		t.lockName = t.name(fmt.Sprint("alone ", i))
		began := time.Now()
		t.release(t.acquire(d2, t.req("b")))
		cycles = append(cycles, time.Since(began))
		t.lockName = t.name(fmt.Sprint("hand-over ", i))
		l := t.acquire(d1, t.req("a"))
		w := t.startWaiting(d2, t.req("b"))
		released := time.Now()
		t.release(l)
		t.release(t.mustBeGranted(w))
		took = append(took, w.returnedTime.Sub(released))
	}
	slices.Sort(took)
	slices.Sort(cycles)
	if most := t.wakeLimit() + 2*cycles[4]; took[1] > most {
		t.Errorf("hand-overs from one driver to another took %v, and cycles without a waiter %v; want at most %v", took,
			cycles, most)
	}
}

func cancelClauses() []clause {
	return []clause{
		{
			name: "Cancel/Cause",
			why:  "a wait that ends because its context does says so with the context's cause, and ends soon",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				cancelled := time.Now()
				w.cancel(errGone)
				t.mustAnswer(t.mustFail(w), errGone, "Acquire")
				t.mustBeInTime(w.returnedTime.Sub(cancelled), "return of Acquire after its context was done")
			},
		},
		{
			name: "Cancel/Before",
			why:  "Acquire never grants once its context is done, free as the lock may be: nobody is there to release it",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.release(t.acquire(d2, t.req("earlier")))
				for _, noWait := range []bool{false, true} {
					ctx, cancel := context.WithCancelCause(t.ctx)
					cancel(errGone)
					req := t.req("a")
					req.NoWait = noWait
					t.mustAnswer(t.mustFail(t.startAcquireWith(ctx, d1, req)), errGone, "Acquire with NoWait %v", noWait)
					t.mustBeFree(d2, "after an Acquire whose context was done")
				}
			},
		},
		{
			name: "Cancel/LeavesNothing",
			why: "a wait that was given up leaves no place in the queue, and no grant to nobody later on, whatever its cause: " +
				"an errgroup cancels with ErrHeld if another lock is held, and that says nothing about this one",
			run: cancelLeavesNothing,
		},
		{
			name: "Cancel/DoesNotJam",
			why:  "a waiter that gave up does not keep those behind it from their turn",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				gone := t.startWaiting(d2, t.req("b"))
				next := t.startWaiting(d3, t.req("c"))
				t.sleep(t.wakeLimit()) // they have waited for a while
				gone.cancel(errGone)
				_ = t.mustFail(gone)
				t.release(l)
				t.mustBeGranted(next)
			},
		},
		{
			name: "Cancel/RacesGrant",
			why: "when the end of the context meets the grant there is either a lease or nothing left behind; and no " +
				"lease if the context ended first",
			run: cancelRacesGrant,
		},
	}
}

// cancelLeavesNothing cancels waits with causes that match the errors of drivers, and others. There
// are two waits for each lock: a driver that has seen others wait may send its second request
// differently.
func cancelLeavesNothing(t *trial) {
	d1, d2 := t.open(), t.open()
	for _, like := range []error{
		errGone, driver.ErrHeld, driver.ErrLost, driver.ErrKind, driver.ErrInvalid, driver.ErrUnavailable, driver.ErrClosed,
	} {
		cause := fmt.Errorf("drivertest: something else: %w", like)
		t.lockName = t.name("cancelled with " + like.Error())
		l := t.acquire(d1, t.req("holder"))
		var slowest time.Duration
		for i := range 2 {
			w := t.startWaiting(d2, t.req(fmt.Sprint("waiter ", i)))
			if i > 0 {
				t.sleep(t.wakeLimit()) // it has waited for a while
			}
			cancelled := time.Now()
			w.cancel(cause)
			_ = t.mustFail(w)
			slowest = max(slowest, w.returnedTime.Sub(cancelled)) // a busy store may execute a request after its withdrawal
			t.mustBeWithdrawn(slowest, func() error { return t.checkNoWaiters(d1) })
		}
		t.release(l)
		t.mustBeWithdrawn(slowest, func() error {
			if err := t.checkFree(d1); err != nil {
				return fmt.Errorf("after the release of a lock whose waiters were cancelled with %q: %w", cause.Error(), err)
			}
			return nil
		})
	}
}

// checkNoWaiters returns nil if nobody waits for the trial's lock.
func (t *trial) checkNoWaiters(d driver.Driver) error {
	t.Helper()
	if st := t.status(d); len(st.Waiters) > 0 {
		return fmt.Errorf("Status shows waiters: %+v", st.Waiters)
	}
	return nil
}

// cancelRacesGrant cancels a waiter just before or just after a release, in turns, without
// giving the waiter time to notice.
func cancelRacesGrant(t *trial) {
	d1, d2 := t.open(), t.open()
	for i := range 20 {
		t.lockName = t.name(fmt.Sprint("race ", i))
		l := t.acquire(d1, t.req("a"))
		w := t.startWaiting(d2, t.req("b"))
		first, givenUp := i%2 == 0, time.Now()
		if first {
			w.cancel(errGone)
		}
		t.release(l)
		w.cancel(errGone)
		t.waitReturned(w, waitTimeout)
		switch {
		case w.err == nil && first:
			t.Fatalf("round %d: granted after the context was done", i)
		case w.err == nil:
			t.mustBeHeld(d1, t.req("c"), "after a grant that came just before the end of its context")
			t.release(w.lease)
			t.mustBeFree(d1, fmt.Sprintf(
				"in round %d, after the release of a grant that came just before the end of its context", i))
		default:
			t.mustBeWithdrawn(w.returnedTime.Sub(givenUp), func() error { return t.checkFree(d1) })
		}
	}
}

func fairClauses() []clause {
	fair := when(func(i driver.Info, _ Harness) bool { return i.Fair }, "the driver is not fair")
	return []clause{
		{
			name: "Fair/Order",
			why:  "fair means first come, first served, over all processes",
			gate: fair,
			run:  servedInOrder,
		},
		{
			name: "Fair/NoBarging",
			why:  "a newcomer does not slip in between a release and the waiter that it was meant for",
			gate: fair,
			run:  noBarging,
		},
	}
}

func servedInOrder(t *trial) {
	drivers := []driver.Driver{t.open(), t.open(), t.open()}
	l := t.acquire(drivers[0], t.req("holder"))
	served := make(chan int, 6)
	waits := make([]*waiter, cap(served))
	for i := range waits {
		waits[i] = t.startWaiting(drivers[i%len(drivers)], t.req(fmt.Sprint("waiter ", i)))
		t.running.Go(func() { <-waits[i].done; served <- i })
	}
	for want := range waits {
		t.release(l)
		if got, ok := await(t, served, waitTimeout); !ok || got != want {
			t.Fatalf("waiter %d was served: %v, want %d", got, ok, want)
		}
		l = t.mustBeGranted(waits[want])
	}
}

func noBarging(t *trial) {
	d1, d2 := t.open(), t.open()
	l := t.acquire(d1, t.req("a"))
	w := t.startWaiting(d2, t.req("b"))
	t.release(l)
	// The newcomer runs in the same goroutine, so that the waiter has had no time to notice the
	// release. The waiter must have been given the lock nonetheless: the newcomer waits until
	// its context ends.
	ctx, cancel := context.WithTimeoutCause(t.ctx, t.wakeLimit(), errGone)
	defer cancel()
	if _, err := d1.Acquire(ctx, t.req("c")); err == nil {
		t.Fatalf("a newcomer was granted before the waiter that came first")
	}
	t.mustBeGranted(w)
}

func closeClauses() []clause {
	return []clause{
		{
			name: "Close/WakesWaiters",
			why:  "a call that waits when its driver is closed returns ErrClosed; else a program that shuts down hangs",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				closed := time.Now()
				t.mustAnswer(d2.Close(), nil, "Close")
				t.mustAnswer(t.mustFail(w), driver.ErrClosed, "Acquire whose driver was closed meanwhile")
				t.mustBeInTime(w.returnedTime.Sub(closed), "return of Acquire after Close")
			},
		},
		{
			name: "Close/WithdrawsWaiters",
			why:  "a wait that Close ended has left the queue: those behind it do not wait for a process that is gone",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				closed := time.Now()
				t.mustAnswer(d2.Close(), nil, "Close")
				_ = t.mustFail(w)
				t.release(l)
				t.mustBeWithdrawn(w.returnedTime.Sub(closed), func() error { return t.checkFree(d1) })
			},
		},
		{
			name: "Close/RacesGrant",
			why: "a request that Close ended has left no lease behind: nobody knows the id of a Detached one, so it " +
				"would last for days",
			run: closeRacesGrant,
		},
		{
			name: "Close/EndsAcquire",
			why: "after Close, Acquire says so instead of failing in some odd way; Close may be called again, as by a defer " +
				"and by the goroutine that shuts the program down",
			run: func(t *trial) {
				d := t.open()
				t.release(t.acquire(d, t.req("earlier")))
				for i := range 3 {
					t.mustAnswer(d.Close(), nil, "Close, call %d,", i+1)
				}
				for _, noWait := range []bool{false, true} {
					req := t.req("a")
					req.NoWait = noWait
					t.mustAnswer(t.mustFail(t.startAcquire(d, req)), driver.ErrClosed, "Acquire with NoWait %v after Close", noWait)
				}
			},
		},
		{
			name: "Close/LeaseLapses",
			why:  "the store, not the driver, ends leases: who closes without releasing blocks others for a TTL at most",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.shortReq("a")
				t.acquire(d1, req)
				since := driver.Now()
				t.mustAnswer(d1.Close(), nil, "Close")
				_, at := t.acquireByPolling(d2, t.req("b"), req.TTL+waitTimeout)
				t.mustBeInTime(at.Sub(since)-req.TTL, "grant after the end of a lease whose driver was closed")
			},
		},
		{
			name: "Close/DetachedStays",
			why: "a Detached lease outlives its process: a script takes it with one command and gives it up with " +
				"another",
			gate: leaseTenure(),
			run: func(t *trial) {
				t.mustOutliveProcess(func(req driver.Request) (gone func()) {
					d := t.open()
					t.acquire(d, req)
					return func() { _ = d.Close() }
				})
			},
		},
		{
			name: "Close/DetachedSurvivesKill",
			why:  "only its TTL, Release or Break ends a Detached lease: that its process died is no reason",
			gate: needs(leaseTenure(), canKill()),
			run: func(t *trial) {
				t.mustOutliveProcess(func(req driver.Request) (gone func()) { return t.h.Kill(t.T, req) })
			},
		},
		{
			name: "Close/SessionOutlivesKill",
			why: "a lock-delay counts on it: where Info.SessionTTL says so, a session does not end just because its " +
				"process died",
			gate: needs(sessionTenure(), canKill(), outlivesConnection()),
			run: func(t *trial) {
				d := t.open()
				kill := t.h.Kill(t.T, t.shortReq("a"))
				kill()
				// The session may have been renewed a third of its TTL before.
				t.sleep(t.info.SessionTTL / 4)
				t.mustBeHeld(d, t.req("b"), "soon after its holder was killed")
			},
		},
		{
			name: "Close/DetachedRefused",
			why:  "what ends with its session can't outlive it: better said at once than found out later",
			gate: sessionTenure(),
			run: func(t *trial) {
				req := t.req("a")
				req.Detached = true
				err := t.mustFail(t.startAcquire(t.open(), req))
				t.mustAnswer(err, driver.ErrInvalid, "Acquire of a Detached lease in a session")
			},
		},
		{
			name: leakClause,
			why:  "what a driver started ends with Close, so that programs can open and close drivers as they like",
			run:  useAndClose,
		},
	}
}

// closeRacesGrant closes drivers while they acquire a free lock, at moments that are spread over
// the time that a grant takes. A grant that came first may stay.
func closeRacesGrant(t *trial) {
	d1 := t.open()
	request := func() driver.Request {
		req := t.req("a")
		req.Detached = t.info.Tenure == driver.TenureLease
		return req
	}
	const rounds = 10
	for i := range rounds {
		d2 := t.open()
		t.lockName = t.name(fmt.Sprint("race ", i))
		began := time.Now()
		l := t.acquire(d2, request())
		took := time.Since(began)
		t.release(l)
		w := t.startAcquire(d2, request())
		t.sleep(took / rounds * time.Duration(i))
		closed := time.Now()
		if err := d2.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
		t.waitReturned(w, waitTimeout)
		if w.err != nil {
			t.mustBeWithdrawn(w.returnedTime.Sub(closed), func() error { return t.checkFree(d1) })
		}
	}
}

// mustOutliveProcess checks that a Detached lease, taken in a process that goes away, lasts for
// its TTL. The function hold takes the lease, and gone ends the process.
func (t *trial) mustOutliveProcess(hold func(driver.Request) (gone func())) {
	t.Helper()
	d := t.open()
	t.rounds(func() bool {
		req := t.shortReq("a")
		req.Detached = true
		end := driver.Now().Add(req.TTL)
		gone := hold(req)
		gone()
		// The store gets time to notice that the process is gone.
		t.sleep(end.Left(driver.Now()) - req.TTL/4)
		_, err := t.tryAcquire(d, t.req("b"))
		if end.Reached(driver.Now()) {
			return false
		}
		t.mustAnswer(err, driver.ErrHeld, "Acquire before the end of a Detached lease, whose process is gone,")
		return true
	})
}

// useAndClose does a little of everything. The cleanup checks that all goroutines are gone.
func useAndClose(t *trial) {
	d1, d2 := t.open(), t.open()
	for i := range 5 {
		t.lockName = t.name(fmt.Sprint("leak ", i))
		l := t.acquire(d1, t.req("a"))
		next, gone := t.startWaiting(d2, t.req("b")), t.startWaiting(d2, t.req("c"))
		t.renew(d1, l)
		gone.cancel(errGone)
		_ = t.mustFail(gone)
		t.release(l)
		t.mustBeGranted(next)
	}
	t.lockName = t.name("leak, last")
	t.acquire(d1, t.req("a"))
	w := t.startWaiting(d2, t.req("waits as it is closed"))
	for _, d := range []driver.Driver{d2, d1} {
		t.mustAnswer(d.Close(), nil, "Close")
	}
	_ = t.mustFail(w)
}

func tellsHeld(t *trial) {
	d1, d2 := t.open(), t.open()
	t.acquire(d1, t.req("a"))
	var returned atomic.Bool
	told := make(chan error, 1)
	req := t.req("b")
	req.OnWait = func(err error) {
		if returned.Load() {
			t.Errorf("OnWait(%v) was called after Acquire had returned", err)
		}
		select {
		case told <- err:
		default:
		}
	}
	w := t.startAcquire(d2, req)
	for err := errors.New("nothing"); err != nil; { // a busy store may not answer at first
		var ok bool
		if err, ok = await(t, told, waitTimeout); !ok {
			t.Fatalf("OnWait(nil) was not called within %v", waitTimeout)
		}
	}
	w.cancel(errGone)
	_ = t.mustFail(w)
	returned.Store(true)
	t.sleep(t.pause())
}
