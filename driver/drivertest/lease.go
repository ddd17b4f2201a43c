package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

func leaseClauses() []clause {
	return []clause{
		{
			name: "Lease/NotEarly",
			why: "the store gives the lock to nobody else before Start+TTL: until then the holder relies on it, by a " +
				"clock that was read before the request was sent",
			gate: leaseTenure(),
			run:  notEarly,
		},
		{
			name: "Lease/NotLate",
			why:  "a lease that has ended is over for NoWait too, whether or not anybody has swept it up",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.shortReq("a")
				t.acquire(d1, req)
				t.sleep(req.TTL)
				t.eventually("lease for NoWait after the end of another's", t.slack(), func() error {
					_, err := t.tryAcquire(d2, t.req("b"))
					return err
				})
			},
		},
		{
			name: "Lease/Start",
			why:  "Start is our clock just before the request: later, and the holder relies on a lease that has ended",
			run: func(t *trial) {
				d := t.open()
				t.checkStart("of a grant", d.Info().SessionTTL/6, func() driver.Instant {
					l := t.acquire(d, t.req("a"))
					defer t.release(l)
					return l.Grant().Start
				})
			},
		},
		{
			name: "Lease/StartAfterWait",
			why:  "Start belongs to the request that led to the grant: counted from before a long wait, the lease is over",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.shortReq("b")
				l := t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, req)
				t.sleep(2 * req.TTL) // the wait outlasts the waiter's own TTL
				released := driver.Now()
				t.release(l)
				left := leaseEnd(t.mustBeGranted(w), req).Left(released)
				if left+10*t.lateness() <= 0 { // see checkStart
					t.Errorf("the lease that was waited for ended, by Start and TTL, %v before it could be granted", -left)
				}
			},
		},
		{
			name: "Lease/GrantIsConstant",
			why:  "Grant is what the store said when it granted the lease: the core reads it from several goroutines",
			run: func(t *trial) {
				d := t.open()
				l := t.acquire(d, t.req("a"))
				want := l.Grant()
				t.sleep(t.h.TTL / 10)
				t.mustAnswer(t.renew(d, l)[0].Err, nil, "Renew")
				if got := l.Grant(); got != want {
					t.Errorf("Grant after a renewal = %+v, want %+v as before", got, want)
				}
				t.release(l)
				if got := l.Grant(); got.Token != want.Token || got.Start != want.Start {
					t.Errorf("Grant after Release = %+v, want %+v as before", got, want)
				}
			},
		},
		{
			name: "Lease/LostOnlyIfLost",
			why:  "OnLost tells of a loss, and a release is none: a call after it would end the next hold",
			run: func(t *trial) {
				d := t.open()
				req := t.req("a")
				losses := recordLosses(&req)
				t.release(t.acquire(d, req))
				t.sleep(t.h.TTL / 10)
				select {
				case err := <-losses:
					t.Errorf("OnLost after Release was called with %v", err)
				default:
				}
			},
		},
	}
}

// checkStart checks a Start against the times just before the call that gives it, which it may
// precede by most, and just after it.
func (t *trial) checkStart(what string, most time.Duration, call func() driver.Instant) {
	t.Helper()
	t.sleep(t.h.TTL / 20) // so that a Start left from an earlier call is old
	before := driver.Now()
	start := call()
	if t.info.SessionTTL > 0 { // a late machine sends late what keeps the session
		most += 10 * t.lateness()
	}
	if early := before.Sub(start); early > most+maxRounding {
		t.Errorf("Start %s lies %v before the call, want it just before the request was sent", what, early)
	}
	if late := start.Sub(driver.Now()); late > 0 {
		t.Errorf("Start %s lies %v after the return of the call", what, late)
	}
}

// notEarly requests a lock just before the end of its lease, and then until the lease is over.
func notEarly(t *trial) {
	d1, d2 := t.open(), t.open()
	t.rounds(func() bool {
		req := t.shortReq("a")
		l := t.acquire(d1, req)
		end := leaseEnd(l, req)
		t.sleep(end.Left(driver.Now()) - req.TTL/10)
		_, err := t.tryAcquire(d2, t.req("b"))
		if end.Reached(driver.Now()) {
			return false
		}
		t.mustAnswer(err, driver.ErrHeld, "Acquire a tenth of the TTL before its end")
		_, at := t.acquireByPolling(d2, t.req("c"), req.TTL+waitTimeout)
		if early := end.Left(at); early > maxRounding {
			t.Fatalf("granted to another %v before Start+TTL of the holder", early)
		}
		return true
	})
}

func renewClauses() []clause {
	return []clause{
		{
			name: "Renew/Extends",
			why:  "a renewal lets the lease last one TTL from now: a hold goes on for as long as its holder renews",
			gate: leaseTenure(),
			run:  renewalExtends,
		},
		{
			name: "Renew/DoesNotAdd",
			why:  "a renewal sets the end of the lease and does not add to it; else a crash blocks others for many TTLs",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.rounds(func() bool {
					req := t.shortReq("a")
					l := t.acquire(d1, req)
					for range 5 {
						if t.renew(d1, l)[0].Err != nil {
							return false // Renew/Extends says whether it was in time
						}
					}
					renewed := driver.Now()
					_, at := t.acquireByPolling(d2, t.req("b"), req.TTL+waitTimeout)
					t.mustBeInTime(at.Sub(renewed)-req.TTL, "grant to another, a TTL after five renewals at once")
					return true
				})
			},
		},
		{
			name: "Renew/Start",
			why:  "the holder counts the renewed lease from Start: it lies within the call, and is set only on success",
			run: func(t *trial) {
				d := t.open()
				l := t.acquire(d, t.req("a"))
				t.checkStart("of a renewal", 0, func() driver.Instant {
					got := t.renew(d, l)[0]
					t.mustAnswer(got.Err, nil, "Renew")
					return got.Start
				})
				t.release(l)
				if got := t.renew(d, l)[0]; got.Err != nil && !got.Start.IsZero() {
					t.Errorf("Renew = %v with a Start, want none with an error", got.Err)
				}
			},
		},
		{
			name: "Renew/Batch",
			why:  "a batch is answered one by one and in order: a mixed-up answer ends the wrong hold, or none",
			run:  renewsBatch,
		},
		{
			name: "Renew/All",
			why:  "a renewal of all leases has one answer, from whose Start each lasts its TTL: the holders count from it",
			gate: renewsAll(),
			run: func(t *trial) {
				d := t.open()
				l := t.acquire(d, t.req("a"))
				t.checkStart("of a renewal of all leases", 0, func() driver.Instant { return t.renewAll(d) })
				t.release(l)
			},
		},
		{
			name: "Renew/AllTells",
			why: "a renewal of all leases finds those that have ended, and tells their holders before it answers: the " +
				"others rely on the answer",
			gate: renewsAll(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				const leases, broken = 5, 3
				var losses [leases]<-chan error
				for i := range losses {
					req := t.req(fmt.Sprint("a", i))
					req.Name = t.name(fmt.Sprint("all ", i))
					losses[i] = recordLosses(&req)
					l := t.acquire(d1, req)
					if i != broken {
						continue
					}
					t.mustAnswer(d2.Break(t.boundedContext(), req.Name, l.ID()), nil, "Break")
				}
				t.renewAll(d1)
				for i, told := range losses {
					select {
					case err := <-told:
						if i != broken || !errors.Is(err, driver.ErrLost) {
							t.Errorf("OnLost of lease %d was called with %v; lease %d was broken", i, err, broken)
						}
					default:
						if i == broken {
							t.Errorf("OnLost of a lease that was broken was not called before the renewal of all leases returned")
						}
					}
				}
			},
		},
		{
			name: "Renew/NotReleased",
			why:  "a renewal that comes after the release must not bring the lock back, with nobody to release it again",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				t.release(l)
				t.mustBeLost(d1, l, "after Release")
				t.mustBeFree(d2, "after a renewal that came late")
			},
		},
		{
			name: "Renew/NotExpired",
			why: "a gap is a loss: somebody may have come since the lease ended, so it is never revived, whether the lock " +
				"is free or another's, whose lease is not prolonged",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.shortReq("a"))
				t.waitForExpiry(d2, l)
				t.mustBeLost(d1, l, "of a lease that has expired, with the lock free,")
				other := t.acquire(d2, t.req("b"))
				t.mustBeLost(d1, l, "of a lease that has expired, with the lock held by another,")
				t.mustAnswer(t.renew(d2, other)[0].Err, nil, "Renew by the holder after a stranger's")
				t.release(other)
				t.mustBeLost(d1, l, "of a lease that has expired, after another hold came and went,")
				t.mustBeFree(d2, "after renewals of an expired lease")
			},
		},
	}
}

func renewalExtends(t *trial) {
	d1, d2 := t.open(), t.open()
	t.rounds(func() bool {
		req := t.shortReq("a")
		l := t.acquire(d1, req)
		end := leaseEnd(l, req)
		for range 3 {
			t.sleep(req.TTL * 6 / 10)
			got := t.renew(d1, l)[0]
			if end.Left(driver.Now()) < req.TTL/20 { // a driver that allows for drift ends a lease early
				return false
			}
			t.mustAnswer(got.Err, nil, "Renew in time")
			end = got.Start.Add(leaseLength(l, req))
		}
		t.sleep(end.Left(driver.Now()) - req.TTL/10)
		_, err := t.tryAcquire(d2, t.req("b"))
		if end.Reached(driver.Now()) {
			return false
		}
		t.mustAnswer(err, driver.ErrHeld, "Acquire before the end of a renewed lease")
		return true
	})
}

func renewsBatch(t *trial) {
	d := t.open()
	if got := d.Renew(t.boundedContext(), nil); len(got) != 0 && !t.info.RenewsAll {
		t.Errorf("Renew of nothing gave %d answers", len(got))
	}
	due := make([]driver.Lease, 40)
	gone := func(i int) bool { return i == 0 || i%7 == 3 }
	for i := range due {
		req := t.req(fmt.Sprint("a", i))
		req.Name = t.name(fmt.Sprint("batch ", (i*17)%len(due))) // not in the order of names
		due[i] = t.acquire(d, req)
	}
	for i, l := range due {
		if gone(i) {
			t.release(l)
		}
	}
	var bad []string
	for i, got := range t.renew(d, due...) {
		lost := errors.Is(got.Err, driver.ErrLost)
		if lost != gone(i) || (got.Err == nil) == gone(i) {
			bad = append(bad, fmt.Sprintf("answer %d of a lease that was released %v: %v", i, gone(i), got.Err))
		}
	}
	if len(bad) > 0 {
		t.Errorf("%d of %d answers are wrong, such as %s", len(bad), len(due), bad[0])
	}
	slices.Reverse(due)
	for i, got := range t.renew(d, due...) {
		if (got.Err == nil) == gone(len(due)-1-i) {
			t.Fatalf("in the reverse order, answer %d = %v for a lease that was released %v", i, got.Err, got.Err == nil)
		}
	}
}

func releaseClauses() []clause {
	return []clause{
		{
			name: "Release/LateIsHarmless",
			why:  "a release that comes late must not free the lock of its present holder",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.shortReq("a"))
				t.waitForExpiry(d3, l)
				next := t.acquire(d2, t.req("b"))
				_ = l.Release(t.boundedContext()) // another clause checks the answer
				t.mustBeHeld(d3, t.req("c"), "after a late release by the holder before")
				t.mustAnswer(t.renew(d2, next)[0].Err, nil, "Renew after a late release by the holder before")
			},
		},
		{
			name: "Release/SaysLost",
			why:  "Release of a lease that had ended says ErrLost: the caller learns that others may have been inside",
			gate: leaseTenure(),
			run: func(t *trial) {
				d := t.open()
				t.rounds(func() bool {
					l := t.acquire(d, t.shortReq("a"))
					t.waitForExpiry(d, l)
					err := l.Release(t.boundedContext())
					if err == nil && t.lateness() > driver.CancelTimeout {
						// An answer may have been lost. It may have said that the lease was freed.
						return false
					}
					t.mustAnswer(err, driver.ErrLost, "Release of an expired lease")
					t.mustAnswer(l.Release(t.boundedContext()), driver.ErrLost, "Release of an expired lease, again,")
					return true
				})
			},
		},
		{
			name: "Release/TwiceIsHarmless",
			why: "Release is called by hand and by a defer: the second call answers nil, and does not free what belongs to " +
				"another by then",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				t.release(l)
				t.release(l)
				next := t.acquire(d2, t.req("b"))
				_ = l.Release(t.boundedContext()) // its answer was checked above
				t.mustBeHeld(d3, t.req("c"), "after the second release by the holder before")
				t.mustAnswer(t.renew(d2, next)[0].Err, nil, "Renew after the second release by the holder before")
			},
		},
	}
}

func sessionClauses() []clause {
	return []clause{
		{
			name: "Session/LossReachesEveryLease",
			why: "leases that share a session are lost together, and each holder must learn of it, before others get " +
				"their locks",
			gate: needs(sessionTenure(), canSever()),
			run:  sessionLost,
		},
		{
			name: "Session/CloseEnds",
			why:  "Close ends the session and what hangs on it: others do not wait for a timeout",
			gate: sessionTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				closed := time.Now()
				t.mustAnswer(d1.Close(), nil, "Close")
				t.mustBeGranted(w)
				t.mustBeInTime(w.returnedTime.Sub(closed), "grant after the holder's driver was closed")
			},
		},
		{
			name: "Session/CloseKeepsDelay",
			why:  "a program that closes its driver may have late writes on their way: LockDelay keeps others out also then",
			gate: needs(sessionTenure(), outlivesConnection()),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.req("a")
				req.LockDelay = t.info.SessionTTL / 2
				t.acquire(d1, req)
				closed := time.Now()
				t.mustAnswer(d1.Close(), nil, "Close")
				w := t.startAcquire(d2, t.req("b"))
				t.mustBeGrantedWithin(w, 3*t.info.SessionTTL+waitTimeout)
				if kept := w.returnedTime.Sub(closed); kept < req.LockDelay {
					t.Errorf("granted %v after the holder's driver was closed, and its LockDelay is %v", kept, req.LockDelay)
				}
			},
		},
		{
			name: "Session/LateRelease",
			why:  "a lease that a release leaves, because its context is done, would last for as long as the session",
			gate: sessionTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				another := t.req("another")
				another.Name = t.name("another")
				t.acquire(d1, another) // keeps the session
				l := t.acquire(d1, t.req("a"))
				w := t.startWaiting(d2, t.req("b"))
				ctx, cancel := context.WithCancelCause(t.boundedContext())
				cancel(driver.ErrLost) // the program has lost another lock
				_ = l.Release(ctx)     // it may say that it had no time
				t.mustBeGranted(w)
			},
		},
	}
}

func sessionLost(t *trial) {
	d1, d2 := t.open(), t.open()
	const n = 3
	var losses [n]<-chan error
	var waits [n]*waiter
	var longest time.Duration
	newReq := func(id string, i int) driver.Request {
		req := t.shortReq(fmt.Sprint(id, i))
		req.Name = t.name(fmt.Sprint("lock ", i))
		return req
	}
	for i := range n {
		req := newReq("a", i)
		losses[i] = recordLosses(&req)
		l := t.acquire(d1, req)
		waits[i] = t.startWaiting(d2, newReq("b", i))
		longest = max(longest, leaseLength(l, req))
	}
	t.Cleanup(t.h.Sever(t.T, d1))
	deadline := time.NewTimer(longest + waitTimeout)
	defer deadline.Stop()
	for i := range n {
		var err error
		select {
		case err = <-losses[i]:
		case <-waits[i].done:
			if len(losses[i]) == 0 {
				t.Fatalf("lock %d of %d was given to another, and OnLost has not told its holder", i+1, n)
			}
			err = <-losses[i]
		case <-deadline.C:
			t.Fatalf("OnLost of lease %d of %d was not called %v after the session was cut off", i+1, n, longest+waitTimeout)
		}
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost of lease %d of %d was called with %v, want ErrLost", i+1, n, err)
		}
	}
	for i, w := range waits {
		t.mustBeGrantedWithin(w, longest+waitTimeout)
		select {
		case err := <-losses[i]:
			t.Errorf("OnLost of lease %d of %d was called a second time, with %v", i+1, n, err)
		default:
		}
	}
}
