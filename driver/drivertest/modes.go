package drivertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sniblock/snib/driver"
)

func sharedClauses() []clause {
	return gated(shared(), []clause{
		{
			name: "Shared/ReadersTogether",
			why:  "readers share the lock, also over processes: that is what they ask for",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				a := t.acquire(d1, t.sharedReq("a"))
				b := t.acquire(d1, t.sharedReq("b"))
				c := t.acquire(d2, t.sharedReq("c"))
				t.release(b)
				for i, got := range t.renew(d1, a) {
					t.mustAnswer(got.Err, nil, "Renew of reader %d after another's release", i)
				}
				t.release(a)
				t.release(c)
			},
		},
		{
			name: "Shared/WriterExcludesReaders",
			why:  "who writes is alone",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.req("writer"))
				t.mustBeHeld(d2, t.sharedReq("reader"), "by a reader while a writer holds")
				t.release(l)
				t.acquire(d2, t.sharedReq("later reader"))
			},
		},
		{
			name: "Shared/ReadersExcludeWriter",
			why:  "a writer waits for the last reader, and not just for the first",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				a, b := t.acquire(d1, t.sharedReq("a")), t.acquire(d2, t.sharedReq("b"))
				t.mustBeHeld(d3, t.req("writer"), "by a writer while two readers hold")
				t.release(a)
				t.mustBeHeld(d3, t.req("writer"), "by a writer while one reader holds")
				t.release(b)
				t.mustBeFree(d3, "by a writer after the last reader")
			},
		},
		{
			name: "Shared/WriterWaits",
			why:  "the release of the last reader wakes a writer as any release wakes a waiter",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				a, b := t.acquire(d1, t.sharedReq("a")), t.acquire(d2, t.sharedReq("b"))
				w := t.startWaiting(d3, t.req("writer"))
				t.release(a)
				t.mustBeWaiting(w, "by a writer while a reader holds")
				t.release(b)
				t.mustBeGranted(w)
			},
		},
		{
			name: "Shared/ReadersResume",
			why:  "all readers that waited for a writer go on when it is done; they do not wait for one another",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("writer"))
				waits := []*waiter{
					t.startWaiting(d1, t.sharedReq("a")), t.startWaiting(d2, t.sharedReq("b")), t.startWaiting(d3, t.sharedReq("c")),
				}
				t.release(l)
				for _, w := range waits {
					t.mustBeGranted(w) // without a release in between
				}
			},
		},
		{
			name: "Shared/WriterNotStarved",
			why:  "a stream of readers that overlap would keep a writer out for ever, were later readers always let in",
			run:  writerNotStarved,
		},
		{
			name: "Shared/WriterGivesUp",
			why:  "readers that were held back for a writer go on when it gives up; nothing else would wake them",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				t.acquire(d1, t.sharedReq("a"))
				writer := t.startWaiting(d2, t.req("writer"))
				reader := t.startAcquire(d3, t.sharedReq("b"))
				t.settle(reader) // it waits, or is granted: both are right
				writer.cancel(errGone)
				_ = t.mustFail(writer)
				t.mustBeGranted(reader)
			},
		},
		{
			name: "Shared/DeadReader",
			why:  "a reader that died holds writers up for a TTL, and its ghost does not hold with those that live",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				req := t.sharedReq("dead")
				req.TTL = t.h.TTL
				dead := t.acquire(d1, req)
				l := t.acquire(d2, t.sharedReq("alive"))
				t.waitForExpiry(d3, dead)
				t.mustBeLost(d1, dead, "of a reader that has expired, with another reader alive,")
				t.mustBeHeld(d3, t.req("writer"), "by a writer while a reader is alive")
				t.release(l)
				t.mustBeFree(d3, "after the last living reader")
			},
		},
		{
			name: "Shared/UniqueTokens",
			why:  "readers that hold together still have a token each, above all before",
			gate: fencing(),
			run: func(t *trial) {
				ds := []driver.Driver{t.open(), t.open(), t.open()}
				t.mustRise(t.acquire(ds[0], t.req("writer")), true,
					func(i int) driver.Lease { return t.acquire(ds[i], t.sharedReq(fmt.Sprint(i))) })
			},
		},
	})
}

// sharedReq is like req, for the read side.
func (t *trial) sharedReq(id string) driver.Request {
	req := t.req(id)
	req.Shared = true
	return req
}

// mustRise calls hold three times. It checks that each lease has a greater token than the one
// before, and that all are greater than the token of first. If release is set, first is
// released before.
func (t *trial) mustRise(first driver.Lease, release bool, hold func(i int) driver.Lease) {
	t.Helper()
	last := first.Grant().Token
	if release {
		t.release(first)
	}
	for i := range 3 {
		got := hold(i).Grant().Token
		if got <= last {
			t.Fatalf("Token of hold %d = %d, want more than %d", i+1, got, last)
		}
		last = got
	}
}

// writerNotStarved lets readers come, each before the one before it leaves, until the writer
// holds them back.
func writerNotStarved(t *trial) {
	d1, d2, d3 := t.open(), t.open(), t.open()
	drivers := []driver.Driver{d1, d3}
	present := t.acquire(d1, t.sharedReq("reader 0"))
	writer := t.startWaiting(d2, t.req("writer"))
	start := time.Now()
	for i := 1; ; i++ {
		next, err := t.tryAcquire(drivers[i%2], t.sharedReq(fmt.Sprint("reader ", i)))
		t.release(present)
		if errors.Is(err, driver.ErrHeld) {
			break // held back: the stream has a gap now
		}
		t.mustAnswer(err, nil, "Acquire by a reader")
		present = next
		if i > 100 && time.Since(start) > 2*t.h.TTL {
			t.Fatalf("%d readers came and went past a writer that waited", i)
		}
		t.sleep(t.h.TTL / 100)
	}
	t.mustBeGranted(writer)
}

func slotsClauses() []clause {
	return gated(slots(), []clause{
		{
			name: "Slots/Full",
			why: "a semaphore of n has room for n, over all processes, and not for one more; a slot that is released goes to " +
				"a waiter",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				t.acquire(d1, t.slotReq("a", 3))
				t.acquire(d1, t.slotReq("b", 3))
				l := t.acquire(d2, t.slotReq("c", 3))
				t.mustBeHeld(d2, t.slotReq("d", 3), "of a semaphore that is full")
				w := t.startWaiting(d3, t.slotReq("e", 3))
				t.release(l)
				t.mustBeGranted(w)
				t.mustBeHeld(d2, t.slotReq("f", 3), "of a semaphore that is full again")
			},
		},
		{
			name: "Slots/ReleaseFreesOne",
			why:  "each slot is a hold of its own: the release of one ends no other",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				a, b := t.acquire(d1, t.slotReq("a", 2)), t.acquire(d1, t.slotReq("b", 2))
				t.release(a)
				t.mustAnswer(t.renew(d1, b)[0].Err, nil, "Renew after the release of another slot")
				t.mustBeLost(d1, a, "of a slot that was released")
				t.acquire(d2, t.slotReq("c", 2))
				t.mustBeHeld(d3, t.slotReq("d", 2), "of a semaphore of which one slot of two was released and taken")
			},
		},
		{
			name: "Slots/DeadHolder",
			why:  "the slot of a holder that died comes back after a TTL, though others keep the semaphore alive",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				t.acquire(d1, t.slotReq("alive", 2))
				dead := t.slotReq("dead", 2)
				dead.TTL = t.h.TTL
				t.acquire(d2, dead)
				t.acquireByPolling(d3, t.slotReq("next", 2), dead.TTL+waitTimeout)
			},
		},
		{
			name: "Slots/OtherSize",
			why: "in a rolling deploy that changes the size, there are never more holders than one of them asked for; " +
				"whoever does not fit waits and does not fail, and all are served once they fit",
			run: func(t *trial) {
				d1, d2, d3, d4, d5 := t.open(), t.open(), t.open(), t.open(), t.open()
				a, b := t.acquire(d1, t.slotReq("a", 4)), t.acquire(d2, t.slotReq("b", 4))
				t.acquire(d3, t.slotReq("c", 4))
				t.mustBeHeld(d4, t.slotReq("d", 2), "for 2, while three hold for 4")
				fewer := t.startWaiting(d4, t.slotReq("e", 2))
				t.release(a)
				t.release(b)
				e := t.mustBeGranted(fewer)
				t.mustBeHeld(d1, t.slotReq("f", 4), "for 4, while one of two holds for 2")
				more := []*waiter{t.startWaiting(d1, t.slotReq("g", 4)), t.startWaiting(d2, t.slotReq("h", 4))}
				t.release(e)
				for _, w := range more {
					t.mustBeGranted(w)
				}
				t.acquire(d4, t.slotReq("i", 4))
				t.mustBeHeld(d5, t.slotReq("j", 4), "for 4, while four hold")
			},
		},
		{
			name: "Slots/OtherKind",
			why:  "a lock and a semaphore under one name would not exclude each other: that is a mistake to be told of",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				l := t.acquire(d1, t.slotReq("a", 3))
				t.mustBeOtherKind(d2, t.req("b"), "of a semaphore as a lock")
				if t.info.Shared {
					t.mustBeOtherKind(d2, t.sharedReq("c"), "of a semaphore as a shared lock")
				}
				t.release(l)
				t.lockName = t.name("the other way round")
				t.acquire(d1, t.req("d"))
				t.mustBeOtherKind(d2, t.slotReq("e", 3), "of a lock as a semaphore")
			},
		},
		{
			name: "Slots/KindEnds",
			why:  "a name is bound to a kind only while it is held: the next release may use it otherwise",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				t.release(t.acquire(d1, t.slotReq("a", 3)))
				t.release(t.acquire(d2, t.slotReq("b", 5)))
				t.release(t.acquire(d1, t.req("c")))
				t.release(t.acquire(d2, t.slotReq("d", 2)))
			},
		},
		{
			name: "Slots/UniqueTokens",
			why:  "holders of a semaphore have a token each, above all before",
			gate: fencing(),
			run: func(t *trial) {
				ds := []driver.Driver{t.open(), t.open(), t.open()}
				t.mustRise(t.acquire(ds[0], t.slotReq("first", 4)), false,
					func(i int) driver.Lease { return t.acquire(ds[i], t.slotReq(fmt.Sprint(i), 4)) })
			},
		},
	})
}

// slotReq is like req, for a semaphore of n.
func (t *trial) slotReq(id string, n int) driver.Request {
	req := t.req(id)
	req.Slots = n
	return req
}

// mustBeOtherKind checks that req, waiting or not, is refused because the name is in use as
// another kind of lock.
func (t *trial) mustBeOtherKind(d driver.Driver, req driver.Request, what string) {
	t.Helper()
	for _, noWait := range []bool{true, false} {
		req.NoWait = noWait
		began := time.Now()
		w := t.startAcquire(d, req)
		t.mustAnswer(t.mustFail(w), driver.ErrKind, "Acquire %s, NoWait %v,", what, noWait)
		t.mustBeWithdrawn(w.returnedTime.Sub(began), func() error { return t.checkNoWaiters(d) })
	}
}

func minHoldClauses() []clause {
	return []clause{
		{
			name: "MinHold/StaysTaken",
			why: "a short job must not run twice on hosts whose clocks differ: the lock stays taken after Release until " +
				"it was held for MinHold, and is free then",
			run: func(t *trial) {
				keepsTaken(t, func() driver.Request {
					req := t.req("a")
					req.MinHold = 2 * t.h.TTL
					return req
				})
			},
		},
		{
			name: "MinHold/OutlastsTTL",
			why:  "after Release nobody renews, and MinHold is kept all the same, longer than the TTL as it may be",
			gate: leaseTenure(),
			run: func(t *trial) {
				keepsTaken(t, func() driver.Request {
					req := t.shortReq("a")
					req.MinHold = 3 * req.TTL
					return req
				})
			},
		},
		{
			name: "MinHold/IsReleased",
			why: "MinHold is the store's affair, and the job that is done goes home: its release was heard at once, and its " +
				"lease can't be renewed",
			run: func(t *trial) {
				d := t.open()
				req := t.req("a")
				req.MinHold = t.h.TTL + 3*t.h.Slack
				l := t.acquire(d, req)
				start := time.Now()
				t.release(l)
				t.mustBeInTime(time.Since(start), "Release with a MinHold of %v", req.MinHold)
				t.mustBeLost(d, l, "of a lease that MinHold keeps")
				t.release(l)
			},
		},
		{
			name: "MinHold/Past",
			why:  "a hold that has lasted MinHold is over with its release",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.req("a")
				req.MinHold = t.h.TTL / 2
				l := t.acquire(d1, req)
				t.sleep(req.MinHold + t.wakeLimit())
				t.release(l)
				t.mustBeFree(d2, "after the release of a lock held for longer than MinHold")
			},
		},
		{
			name: "MinHold/OutlivesProcess",
			why:  "a short job's process ends right after its release: the lock stays taken for MinHold all the same",
			gate: outlivesConnection(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req := t.req("a")
				req.MinHold = 2 * t.h.TTL
				asked := driver.Now() // not Grant.Start, which may be that of a renewal
				l := t.acquire(d1, req)
				w := t.startWaiting(d2, t.req("next"))
				t.release(l)
				t.mustAnswer(d1.Close(), nil, "Close")
				t.mustBeGrantedWithin(w, req.MinHold+waitTimeout)
				if held := w.returned.Sub(asked); held < req.MinHold-maxRounding {
					t.Errorf("granted to a waiter %v after the request, want MinHold, %v, at least", held, req.MinHold)
				}
			},
		},
	}
}

// keepsTaken checks when a lock that is released at once becomes free for another.
func keepsTaken(t *trial, newReq func() driver.Request) {
	d1, d2 := t.open(), t.open()
	t.rounds(func() bool {
		req := newReq()
		asked := driver.Now() // not Grant.Start, which may be that of a renewal
		l := t.acquire(d1, req)
		since := driver.Now()
		if err := l.Release(t.boundedContext()); err != nil {
			if leaseEnd(l, req).Reached(driver.Now()) {
				return false
			}
			t.Fatalf("Release = %v, want nil", err)
		}
		_, at := t.acquireByPolling(d2, t.req("next"), req.MinHold+waitTimeout)
		if held := at.Sub(asked); held < req.MinHold-maxRounding {
			t.Errorf("granted to another %v after the request, want MinHold, %v, at least", held, req.MinHold)
		}
		t.mustBeInTime(at.Sub(since)-req.MinHold, "grant to another after the end of MinHold")
		return true
	})
}

func wantedClauses() []clause {
	return []clause{
		{
			name: "Wanted/Alone",
			why:  "a holder that is told of others when there are none hands over through the store for nothing",
			run: func(t *trial) {
				d := t.open()
				req, wanted := t.tokenBlockReq("a")
				l := t.acquire(d, req)
				t.mustAnswer(t.renew(d, l)[0].Err, nil, "Renew")
				t.sleep(t.h.TTL / 4)
				select {
				case <-wanted:
					t.Errorf("OnWanted was called while nobody waits")
				default:
				}
			},
		},
		{
			name: "Wanted/OtherProcess",
			why:  "a process that keeps a lock among its own callers stops when another waits: else that one starves",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				req, wanted := t.tokenBlockReq("a")
				t.acquire(d1, req)
				t.startWaiting(d2, t.req("b"))
				if _, ok := await(t, wanted, t.h.TTL); !ok {
					t.Errorf("OnWanted was not called within %v after another driver began to wait", t.h.TTL+t.slack())
				}
			},
		},
		{
			name: "Wanted/AlreadyWaiting",
			why: "a holder that is granted the lock with waiters behind it is told of them too: they came before, and " +
				"will not come again",
			run: func(t *trial) {
				d1, d2, d3 := t.open(), t.open(), t.open()
				l := t.acquire(d1, t.req("a"))
				second, wanted2 := t.tokenBlockReq("b")
				third, wanted3 := t.tokenBlockReq("c")
				granted := make(chan (<-chan struct{}), 2) // either may be first if the driver is not fair
				w2, w3 := t.startWaiting(d2, second), t.startWaiting(d3, third)
				t.running.Go(func() { <-w2.done; granted <- wanted2 })
				t.running.Go(func() { <-w3.done; granted <- wanted3 })
				t.release(l)
				wanted, ok := await(t, granted, waitTimeout)
				if !ok {
					t.Fatalf("no waiter was granted within %v", waitTimeout)
				}
				if _, ok := await(t, wanted, t.h.TTL); !ok {
					t.Errorf("OnWanted was not called within %v after a grant with another driver waiting", t.h.TTL+t.slack())
				}
			},
		},
	}
}

// tokenBlockReq is like req, for a caller that hands holds over by itself: some drivers report
// waiters only to such callers. It also returns a channel that OnWanted closes. It skips the case
// if the backend does not promise that.
func (t *trial) tokenBlockReq(id string) (driver.Request, <-chan struct{}) {
	t.Helper()
	if !t.info.TellsWanted {
		t.skip("Info.TellsWanted is false: the backend can't tell")
	}
	req, wanted := t.req(id), make(chan struct{})
	var calls atomic.Int32
	req.Tokens = 10
	req.OnWanted = func() {
		if calls.Add(1) > 1 {
			t.Errorf("OnWanted was called again")
			return
		}
		close(wanted)
	}
	return req, wanted
}
