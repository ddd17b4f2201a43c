package mysqllock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

func TestSession(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for name, run := range map[string]func(*testing.T, *mysqltest.Server){
		"Strangers": sessionForeignClients, "OneKey": sessionOneKey, "Killed": sessionKilled, "Doubt": sessionDoubt,
		"Connections": sessionConnections, "OutlivesTTL": sessionOutlivesTTL, "EndsWhileGranted": sessionEndsWhileGranted,
		"TellsBeforeGrant": sessionTellsBeforeGrant, "TellsWhenServerDies": sessionTellsWhenServerDies,
	} {
		t.Run(name, func(t *testing.T) { run(t, server) })
	}
}

// A session holds a lock for as long as it lives, whatever the TTL of the request. Others that want
// the lock don't end the hold.
func sessionOutlivesTTL(t *testing.T, server *mysqltest.Server) {
	d, other := newSession(t, dial(t, server.DSN())), newSession(t, dial(t, server.DSN()))
	req := request("outlives", "a")
	req.TTL = 100 * time.Millisecond
	l := acquire(t, d, req)
	jobtest.Waiting(t, other, request("outlives", "b"))
	mustBeHeld(t, other, request("outlives", "c"))
	// A process that waits takes the lock of a row that was unchanged for the TTL and a second.
	livetest.Await(t, "hold that is older than its TTL", func() error {
		st, err := other.Status(t.Context(), "outlives")
		if err == nil && len(st.Holders) == 1 && st.Holders[0].Held < 2*time.Second {
			err = fmt.Errorf("status %+v", st)
		}
		return err
	})
	if err := d.Renew(testContext(t), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew = %v", err)
	}
}

// A foreign client that locks the same name with GET_LOCK is excluded, and excludes.
func sessionForeignClients(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	d := newSession(t, db)
	foreign, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	answer := func(call string) (n int) {
		t.Helper()
		if err := foreign.QueryRowContext(testContext(t), "SELECT "+call).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	l := acquire(t, d, request("nightly report", "a"))
	if answer("GET_LOCK('nightly report', 0)") != 0 {
		t.Fatal("a stranger got the lock that we have")
	}
	release(t, l)
	if answer("GET_LOCK('nightly report', 1)") != 1 {
		t.Fatal("a stranger did not get the lock that we gave up")
	}
	mustBeHeld(t, d, request("nightly report", "b"))
	got := make(chan error, 1)
	go func() {
		l, err := d.Acquire(testContext(t), request("nightly report", "c"))
		if err == nil {
			err = l.Release(testContext(t))
		}
		got <- err
	}()
	time.Sleep(300 * time.Millisecond) // time for a few tries
	slack := livetest.Slack(t)
	began := time.Now()
	answer("RELEASE_LOCK('nightly report')")
	if err := <-got; err != nil || time.Since(began) > soonEnough+slack() {
		t.Errorf("Acquire after the stranger = %v after %v", err, time.Since(began))
	}
}

// Two names with one key are one lock, even in one session, to which the server would grant it
// twice.
func sessionOneKey(t *testing.T, server *mysqltest.Server) {
	d := newSession(t, dial(t, server.DSN()), mysqllock.Keys(func(string) string { return "the same" }))
	l := acquire(t, d, request("a", "1"))
	mustBeHeld(t, d, request("b", "2"))
	release(t, l)
	release(t, acquire(t, d, request("b", "2")))
}

// A session that the server has ended is noticed, its leases are lost, and the next lease is in a
// new session.
func sessionKilled(t *testing.T, server *mysqltest.Server) {
	d := newSession(t, dial(t, server.DSN()), mysqllock.Timeout(2*time.Second))
	admin := dial(t, server.DSN())
	l, told := jobtest.AcquireTold(t, d, request("killed", "a"))
	second, toldSecond := jobtest.AcquireTold(t, d, request("killed too", "a"))
	killAll(t, admin)
	jobtest.AwaitLoss(t, told, 2*time.Second)
	jobtest.AwaitLoss(t, toldSecond, 2*time.Second)
	for _, l := range []driver.Lease{l, second} {
		if err := l.Release(testContext(t)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release = %v, want ErrLost", err)
		}
	}
	next := acquire(t, d, request("killed", "b"))
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
	}
}

// When RELEASE_LOCK answers that the session does not have the lock, the driver trusts the
// session no longer.
func sessionDoubt(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	var twisted atomic.Bool
	d := newSession(t, db, mysqllock.Keys(func(name string) string {
		if twisted.Load() && name == "twisted" {
			return "another" // as if the server had lost it
		}
		return name
	}))
	_, told := jobtest.AcquireTold(t, d, request("beside", "a"))
	l := acquire(t, d, request("twisted", "a"))
	twisted.Store(true)
	_ = l.Release(testContext(t))             // as far as the row is concerned, it may succeed
	jobtest.AwaitLoss(t, told, 5*time.Second) // a session in doubt must end
	for _, name := range []string{"beside", "twisted"} {
		livetest.Await(t, "end of the session", func() error {
			if number(t, db, "SELECT IS_FREE_LOCK(?)", name) != 1 {
				return driver.ErrHeld
			}
			return nil
		})
	}
}

// However many locks there are, a process needs one connection for them, and one for its
// statements.
func sessionConnections(t *testing.T, server *mysqltest.Server) {
	db := dial(t, server.DSN())
	db.SetMaxOpenConns(2)
	d := newSession(t, db)
	var leases []driver.Lease
	for i := range 100 {
		leases = append(leases, acquire(t, d, request(fmt.Sprint("many ", i), "a")))
	}
	for i, r := range d.Renew(testContext(t), leases) {
		if r.Err != nil {
			t.Fatalf("Renew of lease %d = %v", i, r.Err)
		}
	}
	other := dial(t, server.DSN())
	livetest.Await(t, "end of the connections that other tests had", func() error {
		if n := number(t, other, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'snib' AND id <> CONNECTION_ID()"); n > 2 {
			return fmt.Errorf("%d connections, want 2", n)
		}
		return nil
	})
	one := dial(t, server.DSN())
	one.SetMaxOpenConns(1)
	_, err := mysqllock.NewSession(one)
	if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "one connection") {
		t.Errorf("NewSession with one connection = %v, want ErrInvalid that says so", err)
	}
}

// If a session is cut off after the row has granted a lease, when GET_LOCK is called, the same
// Acquire opens another one.
func sessionEndsWhileGranted(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	key := mysqllock.Keys(func(name string) string { return "the key of " + name })
	d := newSession(t, dial(t, mysqltest.DSN(proxy.Addr())), key)
	other := newSession(t, dial(t, server.DSN()), key)
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "the key of ends")
	jobtest.EndsWhileGranted(t, d, other, lost)
}
