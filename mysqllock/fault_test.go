package mysqllock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestServerKilled kills the server with SIGKILL, at different moments. The server must not issue a
// token again, or a smaller one. A lease that it has acknowledged must go on.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	d := newDriver(t, server.DSN())
	var last uint64
	rising := func(what string, token uint64) {
		t.Helper()
		if token <= last {
			t.Fatalf("%s: token %d after %d", what, token, last)
		}
		last = token
	}
	l := acquire(t, d, request("counted", "a"))
	ahead := 100_000 + l.Grant().Token // so that the clock does not hide what the row has lost
	must(t, db, "UPDATE snib_locks SET token = ?, version = version + 1 WHERE name = 'counted'", ahead)
	release(t, l)
	last = ahead
	for round := range 3 {
		elsewhere, err := db.Begin() // stays open, with uncommitted changes
		if err != nil {
			t.Fatal(err)
		}
		if _, err := elsewhere.Exec("INSERT INTO snib_locks VALUES (?, 1, 1, 0, '', 0, 0, '', '', NULL, 0)",
			fmt.Sprint("open ", round)); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			l = acquire(t, d, request("counted", fmt.Sprint("b", round, i)))
			rising("a lease", l.Grant().Token)
			release(t, l)
			token, err := d.Token(testContext(t), "counted")
			if err != nil {
				t.Fatal(err)
			}
			rising("Token", token)
		}
		held := acquire(t, d, request("held", fmt.Sprint("c", round)))
		server.Kill()
		_ = elsewhere.Rollback()
		server.Restart()
		mustBeHeld(t, d, request("held", "d"))
		if err := d.Renew(testContext(t), []driver.Lease{held})[0].Err; err != nil {
			t.Errorf("Renew after the restart = %v, want nil: the lease was acknowledged", err)
		}
		release(t, held)
		l = acquire(t, d, request("counted", fmt.Sprint("e", round)))
		rising("after the restart", l.Grant().Token)
		release(t, l)
	}
}

// waiterOutlives checks that a waiter's driver watches again after the loss of its connections.
func waiterOutlives(t *testing.T, server *mysqltest.Server) {
	slack := livetest.Slack(t)
	proxy := livetest.NewProxy(t, server.Addr())
	d1, d2 := newDriver(t, server.DSN()), newDriver(t, mysqltest.DSN(proxy.Addr()))
	best := time.Hour
	for round := range 3 { // the best round counts, because the machine may be busy
		l := acquire(t, d1, request("outlives", fmt.Sprint("a", round)))
		w := livetest.Waiting(t, d2, request("outlives", fmt.Sprint("b", round)))
		time.Sleep(100 * time.Millisecond) // the server watches by now
		if round == 0 {
			proxy.Cut()
			time.Sleep(time.Second) // longer than it takes to watch again
		}
		began := time.Now()
		release(t, l)
		next := w.Get(t)
		best = min(best, w.At.Sub(began))
		if next.Grant().Token <= l.Grant().Token {
			t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
		}
		release(t, next)
	}
	if best > 50*time.Millisecond+slack() {
		t.Errorf("granted %v after the release: nobody watched", best)
	}
}

// cutInEachState cuts connections while a lease is acquired, held or released. The lock must be
// free after the TTL at the latest, and must never be granted twice.
func cutInEachState(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	d, other := newDriver(t, mysqltest.DSN(proxy.Addr())), newDriver(t, server.DSN())
	release(t, acquire(t, other, request("first", "a"))) // this creates the table
	var last uint64
	slack := livetest.Slack(t)
	for i := range 40 {
		req := request("cut", fmt.Sprint(i))
		req.TTL = 300 * time.Millisecond
		timer := time.AfterFunc(time.Duration(i%8)*200*time.Microsecond, proxy.Cut)
		l, err := d.Acquire(testContext(t), req)
		if err == nil {
			if l.Grant().Token <= last {
				t.Fatalf("token %d after %d", l.Grant().Token, last)
			}
			last = l.Grant().Token
			_ = l.Release(testContext(t)) // if it fails, the lease lapses
		}
		timer.Stop()
		began := time.Now()
		next := acquire(t, other, request("cut", fmt.Sprint("other ", i)))
		if took := time.Since(began); took > req.TTL+soonEnough+slack() {
			t.Fatalf("round %d: stranded for %v", i, took)
		}
		if next.Grant().Token <= last {
			t.Fatalf("token %d after %d", next.Grant().Token, last)
		}
		last = next.Grant().Token
		release(t, next)
	}
}

// slowAnswer checks that a lease counts from before its request was sent, even if the answer is
// slow: the server's lease is running already.
func slowAnswer(t *testing.T, server *mysqltest.Server) {
	const late = 200 * time.Millisecond
	proxy := livetest.NewProxy(t, server.Addr())
	d := newDriver(t, mysqltest.DSN(proxy.Addr()))
	reader := request("slow shared", "a")
	reader.Shared = true
	for _, req := range []driver.Request{request("slow", "a"), reader} {
		release(t, acquire(t, d, req)) // this prepares all statements
		proxy.Delay(0, late)
		l := acquire(t, d, req)
		if got := driver.Now().Sub(l.Grant().Start); got < late-10*time.Millisecond {
			t.Errorf("shared %v: granted %v ago, by an answer that took %v", req.Shared, got, late)
		}
		if r := d.Renew(testContext(t), []driver.Lease{l})[0]; r.Err != nil ||
			driver.Now().Sub(r.Start) < late-10*time.Millisecond {
			t.Errorf("shared %v: renewed %v ago, %v, by an answer that took %v", req.Shared, driver.Now().Sub(r.Start), r.Err,
				late)
		}
		proxy.Delay(0, 0)
		release(t, l)
	}
}
