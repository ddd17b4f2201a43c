package mysqllock_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// A lossTime tells when a holder was told of its loss.
func lossTime(req *driver.Request) <-chan time.Time {
	at := make(chan time.Time, 1)
	req.OnLost = func(error) { at <- time.Now() }
	return at
}

// lostAt returns when the loss was told.
func lostAt(t *testing.T, at <-chan time.Time) time.Time {
	t.Helper()
	select {
	case when := <-at:
		return when
	case <-time.After(livetest.Patience):
		t.Fatal("the holder was never told")
		return time.Time{}
	}
}

// killHolder has the server end the connection that has a name locked, and returns when it had been told to.
func killHolder(t *testing.T, admin *sql.DB, name string) time.Time {
	t.Helper()
	id := number(t, admin, "SELECT IS_USED_LOCK(?)", name)
	must(t, admin, fmt.Sprint("KILL ", id))
	return time.Now()
}

// A holder whose session the server has ended is told before another process of ours gets its lock, and as good as at once
// where a stranger gets it.
func sessionTellsBeforeGrant(t *testing.T, server *mysqltest.Server) {
	admin := dial(t, server.DSN())
	for round := range 3 {
		d, other := openSession(t, dial(t, server.DSN())), openSession(t, dial(t, server.DSN()))
		req := ask("tells", "a")
		at := lossTime(&req)
		acquire(t, d, req)
		w := jobtest.Waiting(t, other, ask("tells", "b"))
		killed := killHolder(t, admin, "tells")
		next := w.Get(t)
		told := lostAt(t, at)
		t.Logf("round %d: told %v after KILL, granted to another %v after KILL", round, told.Sub(killed), w.At.Sub(killed))
		if told.After(w.At) {
			t.Errorf("the holder was told %v after its lock was granted to another", told.Sub(w.At))
		}
		release(t, next)
	}
	for round := range 3 {
		d, stranger := openSession(t, dial(t, server.DSN())), dial(t, server.DSN())
		req := ask("tells", "a")
		at := lossTime(&req)
		acquire(t, d, req)
		got := make(chan time.Time, 1)
		go func() {
			number(t, stranger, "SELECT GET_LOCK('tells', 20)")
			got <- time.Now()
		}()
		livetest.Await(t, "stranger that waits", func() error {
			if number(t, admin, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'") == 0 {
				return errors.New("it does not wait")
			}
			return nil
		})
		killHolder(t, admin, "tells")
		granted, told := <-got, lostAt(t, at)
		t.Logf("round %d: told %v after a stranger had the lock", round, told.Sub(granted))
		if late := told.Sub(granted); late > soonEnough {
			t.Errorf("the holder was told %v after a stranger had the lock", late)
		}
		_ = stranger.Close()
	}
}

// A holder is told when the server is killed, and before another gets the lock from the next one.
func sessionTellsWhenServerDies(t *testing.T, server *mysqltest.Server) {
	d, other := openSession(t, dial(t, server.DSN())), openSession(t, dial(t, server.DSN()))
	req := ask("dies", "a")
	at := lossTime(&req)
	acquire(t, d, req)
	w := jobtest.Waiting(t, other, ask("dies", "b"))
	server.Kill()
	killed := time.Now()
	server.Restart()
	next := w.Get(t)
	told := lostAt(t, at)
	t.Logf("told %v after kill -9, granted to another %v after", told.Sub(killed), w.At.Sub(killed))
	if told.After(w.At) || told.Sub(killed) > soonEnough {
		t.Errorf("told %v after kill -9, %v after the grant", told.Sub(killed), told.Sub(w.At))
	}
	release(t, next)
}
