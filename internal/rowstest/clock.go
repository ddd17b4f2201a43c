package rowstest

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// behind is how far the server's clock is set back.
const behind = -time.Hour

// A ClockTest has a database and its clock.
type ClockTest struct {
	Clock *livetest.Shim

	// Open returns another driver, with connections of its own.
	Open func(t *testing.T) Driver

	// Hold starts a process that acquires a lock with a driver as Open returns it.
	Hold func(t *testing.T, req driver.Request) *livetest.Child
}

// ClockBack sets the clock of the database back. A released lock must be free at once, and the
// locks and places of dead processes must be free soon after the next request for the lock.
func ClockBack(t *testing.T, c ClockTest) {
	tests := []struct {
		name string
		run  func(*testing.T, ClockTest)
	}{
		{"Released", releasedBeforeStep},
		{"MinHold", keptAfterStep},
		{"KeptBefore", keptAcrossStep},
		{"Killed", killedBeforeStep},
		{"KilledTried", triedAfterStep},
		{"Alive", livesAcrossStep},
		{"DeadWaiter", deadWaiter},
		{"DeadWaiterSeen", deadWaiterSeen},
		{"DeadWaiterTried", deadWaiterTried},
		{"LiveWaiter", liveWaiter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.Clock.SetClock(0)
			tt.run(t, c)
		})
	}
}

// briefRequest returns a request for a short lease.
func briefRequest(name, id string) driver.Request {
	req := rowRequest(name, id)
	req.TTL = time.Second
	return req
}

// mustBecomeFree tries a lock without waiting until it is granted, and releases it. The lock must
// stay closed for the given time after the first try. Each try has a driver of its own, as each
// "snib run --skip" has: no try learns from the ones before it.
func mustBecomeFree(t *testing.T, c ClockTest, req driver.Request, after time.Duration) {
	t.Helper()
	began := time.Now()
	livetest.Await(t, "lease", func() error {
		time.Sleep(100 * time.Millisecond) // each driver prepares its statements
		d := c.Open(t)
		l, err := tryAcquire(t, d, req)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if early := after - time.Since(began); early > 0 {
			t.Errorf("%q was free %v too early", req.Name, early)
		}
		return l.Release(t.Context())
	})
}

func releasedBeforeStep(t *testing.T, c ClockTest) {
	d, other := c.Open(t), c.Open(t)
	l := livetest.Acquire(t, d, rowRequest("released", "a"))
	reader := rowRequest("released readers", "a")
	reader.Shared = true
	first := livetest.Acquire(t, d, reader)
	reader.ID = "b"
	second := livetest.Acquire(t, d, reader)
	w := livetest.Waiting(t, other, rowRequest("released", "b"))
	c.Clock.SetClock(behind)
	livetest.Release(t, l)
	livetest.Release(t, w.Get(t))
	livetest.Release(t, first)
	livetest.Release(t, second)
	for _, name := range []string{"released", "released readers"} {
		l, err := tryAcquire(t, d, rowRequest(name, "c"))
		livetest.Must(t, err, "Acquire of %q with NoWait", name)
		livetest.Release(t, l)
	}
}

// keptAfterStep releases a lease after the step: its lock is kept for no longer than MinHold
// after the release.
func keptAfterStep(t *testing.T, c ClockTest) {
	d, other := c.Open(t), c.Open(t)
	req := rowRequest("kept", "a")
	req.MinHold = 1500 * time.Millisecond
	l := livetest.Acquire(t, d, req)
	c.Clock.SetClock(behind)
	livetest.Release(t, l)
	livetest.CheckHeld(t, other, "kept", "of a lock that MinHold keeps")
	livetest.Release(t, livetest.Acquire(t, other, rowRequest("kept", "b")))
}

// keptFor is the MinHold of keptRequests.
const keptFor = 1500 * time.Millisecond

// keptRequests returns requests of each kind with a short MinHold.
func keptRequests(id string) []driver.Request {
	plain, reader, slot := rowRequest("kept before", id), rowRequest("kept reader", id), rowRequest("kept slot", id)
	reader.Shared, slot.Slots = true, 1
	all := []driver.Request{plain, reader, slot}
	for i := range all {
		all[i].MinHold = keptFor
	}
	return all
}

// keptAcrossStep releases leases before the step. Their locks are kept for MinHold from the next
// request, whether it waits or not.
func keptAcrossStep(t *testing.T, c ClockTest) {
	d := c.Open(t)
	for _, waits := range []bool{false, true} {
		for _, req := range keptRequests("a") {
			livetest.Release(t, livetest.Acquire(t, d, req))
		}
		c.Clock.SetClock(behind)
		for _, req := range keptRequests("b") {
			req.Shared, req.MinHold = false, 0
			if waits {
				livetest.Release(t, livetest.Acquire(t, d, req))
				continue
			}
			mustBecomeFree(t, c, req, keptFor)
		}
		c.Clock.SetClock(0)
	}
}

// killedBeforeStep has a waiter, which takes the lock of a killed holder after its TTL by the
// waiter's own clock.
func killedBeforeStep(t *testing.T, c ClockTest) {
	req := rowRequest("killed", "a")
	req.TTL = 2 * time.Second
	abandon := livetest.Keep(t, c.Open(t), req)
	w := livetest.Waiting(t, c.Open(t), rowRequest("killed", "b"))
	abandon()
	began := time.Now()
	c.Clock.SetClock(behind)
	next := w.Get(t)
	t.Logf("granted %v after a holder with a TTL of %v was killed", w.At.Sub(began), req.TTL)
	// The last renewal was at most a third of the TTL ago.
	if early := req.TTL/2 - w.At.Sub(began); early > 0 {
		t.Errorf("granted %v too early", early)
	}
	livetest.Release(t, next)
}

// triedAfterStep has no waiter: requests that don't wait are enough to free the locks of killed
// holders.
func triedAfterStep(t *testing.T, c ClockTest) {
	plain, reader, slot := briefRequest("tried", "a"), briefRequest("tried reader", "a"), briefRequest("tried slot", "a")
	reader.Shared, slot.Slots = true, 1
	d := c.Open(t)
	all := []driver.Request{plain, reader, slot}
	var abandon []func()
	for _, req := range all {
		abandon = append(abandon, livetest.Keep(t, d, req))
	}
	for i := range all {
		abandon[i]()
	}
	c.Clock.SetClock(behind)
	for _, req := range all {
		ttl := req.TTL // its holder may still rely on the lease for this long
		req.ID, req.Shared, req.TTL = "b", false, time.Minute
		mustBecomeFree(t, c, req, ttl)
	}
}

// livesAcrossStep has a holder that renews. Nobody takes its lock.
func livesAcrossStep(t *testing.T, c ClockTest) {
	d := c.Open(t)
	req := rowRequest("alive", "a")
	req.TTL = 5 * time.Second // a busy machine may be late by most of it
	l := livetest.Acquire(t, d, req)
	w := livetest.Waiting(t, c.Open(t), rowRequest("alive", "b"))
	c.Clock.SetClock(behind)
	for range 10 { // which takes longer than the TTL
		livetest.Must(t, d.Renew(t.Context(), []driver.Lease{l})[0].Err, "Renew")
		w.Running(t, "while the holder renews")
		livetest.CheckHeld(t, d, "alive", "of a lock whose holder renews")
		time.Sleep(req.TTL / 8) // time between renewals
	}
	livetest.Release(t, l)
	next := w.Get(t)
	if before, got := l.Grant().Token, next.Grant().Token; got <= before {
		t.Errorf("Token after the clock went back = %d, want more than %d", got, before)
	}
	livetest.Release(t, next)
}

// queueAndKill has a process wait for the lock of req, and kills it. Its place in the queue lasts
// for less than 3 s more.
func queueAndKill(t *testing.T, c ClockTest, d Driver, req driver.Request) {
	t.Helper()
	p := c.Hold(t, req)
	awaitWaiters(t, d, req.Name, 1)
	p.Kill()
}

// awaitWaiters waits until n waiters are in the queue for a lock.
func awaitWaiters(t *testing.T, d Driver, name string, n int) {
	t.Helper()
	livetest.Await(t, "waiter in the queue", func() error {
		st, err := d.Status(t.Context(), name)
		if err == nil && len(st.Waiters) < n {
			err = errors.New("too few waiters")
		}
		return err
	})
}

// deadWaiter has a waiter that was killed before the step, and a request that waits after it.
func deadWaiter(t *testing.T, c ClockTest) {
	d := c.Open(t)
	l := livetest.Acquire(t, d, rowRequest("queued", "a"))
	queueAndKill(t, c, d, rowRequest("queued", "b"))
	c.Clock.SetClock(behind)
	livetest.Release(t, l)
	livetest.Release(t, livetest.Acquire(t, c.Open(t), rowRequest("queued", "c")))
}

// deadWaiterSeen has a second waiter, whose process knew the first one when that was killed.
func deadWaiterSeen(t *testing.T, c ClockTest) {
	d, other := c.Open(t), c.Open(t)
	l := livetest.Acquire(t, d, rowRequest("seen", "a"))
	p := c.Hold(t, rowRequest("seen", "b"))
	awaitWaiters(t, d, "seen", 1)
	w := livetest.Waiting(t, other, rowRequest("seen", "c"))
	p.Kill()
	c.Clock.SetClock(behind)
	livetest.Release(t, l)
	livetest.Release(t, w.Get(t))
}

// deadWaiterTried has only requests that don't wait after the step.
func deadWaiterTried(t *testing.T, c ClockTest) {
	d := c.Open(t)
	l := livetest.Acquire(t, d, rowRequest("queue tried", "a"))
	queueAndKill(t, c, d, rowRequest("queue tried", "b"))
	c.Clock.SetClock(behind)
	livetest.Release(t, l)
	mustBecomeFree(t, c, rowRequest("queue tried", "c"), 0)
}

// liveWaiter has a waiter that keeps its place across the step, also while others watch its
// process for longer than heartbeatTimeout.
func liveWaiter(t *testing.T, c ClockTest) {
	d := c.Open(t)
	l := livetest.Acquire(t, d, rowRequest("waits", "a"))
	first := livetest.Waiting(t, c.Open(t), rowRequest("waits", "b"))
	second := livetest.Waiting(t, c.Open(t), rowRequest("waits", "c"))
	c.Clock.SetClock(behind)
	time.Sleep(5 * time.Second) // longer than a process without heartbeats counts as alive
	livetest.CheckHeld(t, d, "waits", "after the step")
	livetest.Release(t, l)
	next := first.Get(t)
	second.Running(t, "while the first has the lock")
	livetest.Release(t, next)
	livetest.Release(t, second.Get(t))
}
