package mysqllock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// behind is how far the server's clock is set back.
const behind = -time.Hour

// A clockTest has a server and its clock.
type clockTest struct {
	server *mysqltest.Server
	clock  *livetest.Shim
}

func (c clockTest) driver(t *testing.T) *mysqllock.Driver {
	t.Helper()
	return newDriver(t, dial(t, c.server.DSN()))
}

// TestClockBack sets the server's clock back: a released lock is free at once, and what dead
// processes left behind is free soon after somebody asks for it.
func TestClockBack(t *testing.T) {
	t.Parallel()
	clock := livetest.NewShim(t, "mysql")
	c := clockTest{mysqltest.Start(livetest.WithEnv(t, clock.Env()...)), clock}
	tests := []struct {
		name string
		run  func(*testing.T, clockTest)
	}{
		{"Released", releasedBeforeStep},
		{"MinHold", keptAfterStep},
		{"KeptBefore", keptAcrossStep},
		{"KeptSession", keptSession},
		{"ReadersAndSlots", readersAndSlots},
		{"Killed", killedBeforeStep},
		{"KilledReaderAndSlot", killedReaderAndSlot},
		{"KilledTried", triedAfterStep},
		{"Alive", livesAcrossStep},
		{"DeadWaiter", deadWaiter},
		{"DeadWaiterSeen", deadWaiterSeen},
		{"DeadWaiterTried", deadWaiterTried},
		{"LiveWaiter", liveWaiter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clock.SetClock(0)
			tt.run(t, c)
		})
	}
}

// briefRequest returns a request for a short lease.
func briefRequest(name, owner string) driver.Request {
	req := request(name, owner)
	req.TTL = time.Second
	return req
}

// mustBecomeFree tries a lock without waiting until it is granted, and releases it. The lock must
// stay closed for the given time after the first try. Each try has a driver of its own, as each
// "snib run --skip" has: no try learns from the ones before it.
func mustBecomeFree(t *testing.T, c clockTest, req driver.Request, after time.Duration) {
	t.Helper()
	db, began := dial(t, c.server.DSN()), time.Now()
	livetest.Await(t, "lease", func() error {
		time.Sleep(100 * time.Millisecond) // each driver prepares its statements
		d := newDriver(t, db)
		l, err := tryAcquire(t, d, req)
		if err != nil {
			return errors.Join(err, d.Close())
		}
		if early := after - time.Since(began); early > 0 {
			t.Errorf("%q was free %v too early", req.Name, early)
		}
		return l.Release(testContext(t))
	})
}

func releasedBeforeStep(t *testing.T, c clockTest) {
	d, other := c.driver(t), c.driver(t)
	l := acquire(t, d, request("released", "a"))
	w := jobtest.Waiting(t, other, request("released", "b"))
	c.clock.SetClock(behind)
	release(t, l)
	release(t, w.Get(t))
	release(t, acquire(t, d, request("released", "c")))
}

// keptAfterStep releases a lease after the step: its lock is kept for no longer than MinHold
// after the release.
func keptAfterStep(t *testing.T, c clockTest) {
	d, other := c.driver(t), c.driver(t)
	req := request("kept", "a")
	req.MinHold = 1500 * time.Millisecond
	l := acquire(t, d, req)
	c.clock.SetClock(behind)
	release(t, l)
	mustBeHeld(t, other, request("kept", "b"))
	release(t, acquire(t, other, request("kept", "b")))
}

// keptFor is the MinHold of keptRequests.
const keptFor = 1500 * time.Millisecond

// keptRequests returns requests of each kind with a short MinHold.
func keptRequests(owner string) []driver.Request {
	plain, reader, slot := request("kept before", owner), request("kept reader", owner), request("kept slot", owner)
	reader.Shared, slot.Slots = true, 1
	all := []driver.Request{plain, reader, slot}
	for i := range all {
		all[i].MinHold = keptFor
	}
	return all
}

// keptAcrossStep releases leases before the step. Their locks are kept for MinHold from the next
// request, whether it waits or not.
func keptAcrossStep(t *testing.T, c clockTest) {
	d := c.driver(t)
	for _, waits := range []bool{false, true} {
		for _, req := range keptRequests("a") {
			release(t, acquire(t, d, req))
		}
		c.clock.SetClock(behind)
		for _, req := range keptRequests("b") {
			req.Shared, req.MinHold = false, 0
			if waits {
				release(t, acquire(t, d, req))
				continue
			}
			mustBecomeFree(t, c, req, keptFor)
		}
		c.clock.SetClock(0)
	}
}

// keptSession is keptAcrossStep for locks of a session, which have no other end by a clock. The
// first request waited before the step.
func keptSession(t *testing.T, c clockTest) {
	d, other := newSession(t, dial(t, c.server.DSN())), newSession(t, dial(t, c.server.DSN()))
	req := request("kept session", "a")
	req.MinHold = time.Second
	release(t, acquire(t, d, req))
	w := jobtest.Waiting(t, other, request("kept session", "b"))
	c.clock.SetClock(behind)
	release(t, w.Get(t))
	release(t, acquire(t, d, req))
	c.clock.SetClock(2 * behind)
	mustBeHeld(t, d, request("kept session", "b"))
	livetest.Await(t, "lease", func() error {
		l, err := tryAcquire(t, d, request("kept session", "b"))
		if err != nil {
			return err
		}
		return l.Release(testContext(t))
	})
}

func readersAndSlots(t *testing.T, c clockTest) {
	d, other := c.driver(t), c.driver(t)
	slot, reader := request("slot", "a"), request("reader", "a")
	slot.Slots, reader.Shared = 1, true
	inSlot, reading := acquire(t, d, slot), acquire(t, d, reader)
	c.clock.SetClock(behind)
	release(t, inSlot)
	release(t, reading)
	slot.Owner, reader.Owner, reader.Shared = "b", "b", false
	release(t, acquire(t, other, slot))
	release(t, acquire(t, other, reader))
}

// killedBeforeStep has a waiter, which takes the lock of a killed holder after its TTL by the
// waiter's own clock.
func killedBeforeStep(t *testing.T, c clockTest) {
	req := request("killed", "a")
	req.TTL = 2 * time.Second
	abandon := jobtest.Keep(t, c.driver(t), req)
	w := jobtest.Waiting(t, c.driver(t), request("killed", "b"))
	abandon()
	began := time.Now()
	c.clock.SetClock(behind)
	next := w.Get(t)
	t.Logf("granted %v after a holder with a TTL of %v was killed", w.At.Sub(began), req.TTL)
	// The last renewal was at most a third of the TTL ago.
	if early := req.TTL/2 - w.At.Sub(began); early > 0 {
		t.Errorf("granted %v too early", early)
	}
	release(t, next)
}

// killedReaderAndSlot is killedBeforeStep for a reader and the holder of a slot.
func killedReaderAndSlot(t *testing.T, c clockTest) {
	slot, reader := briefRequest("killed slot", "a"), briefRequest("killed reader", "a")
	slot.Slots, reader.Shared = 1, true
	d := c.driver(t)
	abandonSlot, abandonReader := jobtest.Keep(t, d, slot), jobtest.Keep(t, d, reader)
	slot.Owner, reader.Owner, reader.Shared = "b", "b", false
	slot.TTL, reader.TTL = time.Minute, time.Minute
	inSlot, writes := jobtest.Waiting(t, c.driver(t), slot), jobtest.Waiting(t, c.driver(t), reader)
	abandonSlot()
	abandonReader()
	c.clock.SetClock(behind)
	release(t, inSlot.Get(t))
	release(t, writes.Get(t))
}

// triedAfterStep has no waiter: requests that don't wait are enough to free the locks of killed
// holders.
func triedAfterStep(t *testing.T, c clockTest) {
	plain, reader, slot := briefRequest("tried", "a"), briefRequest("tried reader", "a"), briefRequest("tried slot", "a")
	reader.Shared, slot.Slots = true, 1
	d := c.driver(t)
	all := []driver.Request{plain, reader, slot}
	var abandon []func()
	for _, req := range all {
		abandon = append(abandon, jobtest.Keep(t, d, req))
	}
	for i := range all {
		abandon[i]()
	}
	c.clock.SetClock(behind)
	for _, req := range all {
		ttl := req.TTL // for so long its holder may still rely on it
		req.Owner, req.Shared, req.TTL = "b", false, time.Minute
		mustBecomeFree(t, c, req, ttl)
	}
}

// livesAcrossStep has a holder that renews. Nobody takes its lock.
func livesAcrossStep(t *testing.T, c clockTest) {
	d := c.driver(t)
	req := request("alive", "a")
	req.TTL = 2 * time.Second
	l := acquire(t, d, req)
	w := jobtest.Waiting(t, c.driver(t), request("alive", "b"))
	c.clock.SetClock(behind)
	for range 20 {
		if r := d.Renew(testContext(t), []driver.Lease{l}); r[0].Err != nil {
			t.Fatalf("Renew = %v", r[0].Err)
		}
		w.Running(t, "while the holder renews")
		mustBeHeld(t, d, request("alive", "c"))
		time.Sleep(req.TTL / 8) // time between renewals
	}
	release(t, l)
	release(t, w.Get(t))
}

// queueAndKill has a process wait for the lock of req, and kills it. Its place in the queue lasts
// for less than 3 s more.
func queueAndKill(t *testing.T, c clockTest, d *mysqllock.Driver, req driver.Request) {
	t.Helper()
	p := hold(t, c.server.DSN(), false, req)
	awaitWaiters(t, d, req.Name, 1)
	p.Kill()
}

// awaitWaiters waits until n waiters are in the queue for a lock.
func awaitWaiters(t *testing.T, d *mysqllock.Driver, name string, n int) {
	t.Helper()
	livetest.Await(t, "waiter in the queue", func() error {
		st, err := d.Status(testContext(t), name)
		if err == nil && len(st.Waiters) < n {
			err = errors.New("too few waiters")
		}
		return err
	})
}

// deadWaiter has a waiter that was killed before the step, and a request that waits after it.
func deadWaiter(t *testing.T, c clockTest) {
	d := c.driver(t)
	l := acquire(t, d, request("queued", "a"))
	queueAndKill(t, c, d, request("queued", "b"))
	c.clock.SetClock(behind)
	release(t, l)
	release(t, acquire(t, c.driver(t), request("queued", "c")))
}

// deadWaiterSeen has a second waiter, whose process knew the first one when that was killed.
func deadWaiterSeen(t *testing.T, c clockTest) {
	d, other := c.driver(t), c.driver(t)
	l := acquire(t, d, request("seen", "a"))
	p := hold(t, c.server.DSN(), false, request("seen", "b"))
	awaitWaiters(t, d, "seen", 1)
	w := jobtest.Waiting(t, other, request("seen", "c"))
	p.Kill()
	c.clock.SetClock(behind)
	release(t, l)
	release(t, w.Get(t))
}

// deadWaiterTried has only requests that don't wait after the step.
func deadWaiterTried(t *testing.T, c clockTest) {
	d := c.driver(t)
	l := acquire(t, d, request("queue tried", "a"))
	queueAndKill(t, c, d, request("queue tried", "b"))
	c.clock.SetClock(behind)
	release(t, l)
	mustBecomeFree(t, c, request("queue tried", "c"), 0)
}

// liveWaiter has a waiter that keeps its place across the step, also while others watch its
// process for longer than heartbeatTimeout.
func liveWaiter(t *testing.T, c clockTest) {
	d := c.driver(t)
	l := acquire(t, d, request("waits", "a"))
	first := jobtest.Waiting(t, c.driver(t), request("waits", "b"))
	second := jobtest.Waiting(t, c.driver(t), request("waits", "c"))
	c.clock.SetClock(behind)
	time.Sleep(5 * time.Second) // longer than a process counts that sends no heartbeat
	mustBeHeld(t, d, request("waits", "d"))
	release(t, l)
	next := first.Get(t)
	second.Running(t, "while the first has the lock")
	release(t, next)
	release(t, second.Get(t))
}
