package mysqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// kill -9 of the server repeats no token and gives none that is smaller, whatever else goes on in it at that moment. A lease
// that it has acknowledged goes on.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	d := open(t, db)
	var last uint64
	rising := func(what string, token uint64) {
		t.Helper()
		if token <= last {
			t.Fatalf("%s: token %d after %d", what, token, last)
		}
		last = token
	}
	l := acquire(t, d, ask("counted", "a"))
	ahead := 100_000 + l.Grant().Token // so that the clock does not hide what the row has lost
	must(t, db, "UPDATE snib_locks SET token = ?, version = version + 1 WHERE name = 'counted'", ahead)
	release(t, l)
	last = ahead
	for round := range 3 {
		elsewhere, err := db.Begin() // stays open, with changes that are not committed
		if err != nil {
			t.Fatal(err)
		}
		if _, err := elsewhere.Exec("INSERT INTO snib_locks VALUES (?, 1, 1, 0, 0, 0, 0, 0, '', '', '', NULL, 0)", fmt.Sprint("open ", round)); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			l = acquire(t, d, ask("counted", fmt.Sprint("b", round, i)))
			rising("a lease", l.Grant().Token)
			release(t, l)
			token, err := d.Token(bounded(t), "counted")
			if err != nil {
				t.Fatal(err)
			}
			rising("Token", token)
		}
		held := acquire(t, d, ask("held", fmt.Sprint("c", round)))
		server.Kill()
		_ = elsewhere.Rollback()
		server.Restart()
		mustBeHeld(t, d, ask("held", "d"))
		if err := d.Renew(bounded(t), []driver.Lease{held})[0].Err; err != nil {
			t.Errorf("Renew after the restart = %v, want nil: the lease was acknowledged", err)
		}
		release(t, held)
		l = acquire(t, d, ask("counted", fmt.Sprint("e", round)))
		rising("after the restart", l.Grant().Token)
		release(t, l)
	}
}

// A waiter outlives the restart of the server, and the loss of its connections.
func waiterOutlives(t *testing.T, server *mysqltest.Server) {
	admin := dial(t, server.DSN())
	for _, tt := range []struct {
		name string
		harm func(t *testing.T, proxy *livetest.Proxy)
	}{
		{"Restart", func(*testing.T, *livetest.Proxy) { server.Kill(); server.Restart() }},
		{"Cut", func(_ *testing.T, proxy *livetest.Proxy) { proxy.Cut() }},
		{"KilledByServer", func(t *testing.T, _ *livetest.Proxy) { killAll(t, admin) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy := livetest.NewProxy(t, server.Addr())
			d1, d2 := open(t, dial(t, server.DSN())), open(t, dial(t, mysqltest.DSN(proxy.Addr())))
			best := time.Hour
			for round := range 3 { // the best counts: a machine may be busy
				l := acquire(t, d1, ask(tt.name, fmt.Sprint("a", round)))
				w := jobtest.Waiting(t, d2, ask(tt.name, fmt.Sprint("b", round)))
				time.Sleep(100 * time.Millisecond) // the server watches by now
				if round == 0 {
					tt.harm(t, proxy)
					time.Sleep(time.Second) // longer than it takes to watch again
				}
				began := time.Now()
				release(t, l)
				next := w.Get(t)
				took := w.At.Sub(began)
				best = min(best, took)
				if next.Grant().Token <= l.Grant().Token {
					t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
				}
				release(t, next)
			}
			if best > 50*time.Millisecond {
				t.Errorf("granted %v after the release: nobody watched", best)
			}
		})
	}
}

// killAll has the server end all connections but those of db.
func killAll(t *testing.T, db *sql.DB) {
	t.Helper()
	rows, err := db.Query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'snib'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		_, _ = db.Exec(fmt.Sprint("KILL ", id)) // it may be gone by itself
	}
}

// A connection that is cut while a lease is taken, held or released strands nothing beyond the TTL, and doubles nothing.
func cutInEachState(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	d, other := open(t, dial(t, mysqltest.DSN(proxy.Addr()))), open(t, dial(t, server.DSN()))
	release(t, acquire(t, other, ask("first", "a"))) // the table is there
	var last uint64
	inside := make(chan struct{}, 1)
	for i := range 40 {
		req := ask("cut", fmt.Sprint(i))
		req.TTL = 300 * time.Millisecond
		timer := time.AfterFunc(time.Duration(i%8)*200*time.Microsecond, proxy.Cut)
		l, err := d.Acquire(bounded(t), req)
		if err == nil {
			select {
			case inside <- struct{}{}:
			default:
				t.Fatal("two are inside")
			}
			if l.Grant().Token <= last {
				t.Fatalf("token %d after %d", l.Grant().Token, last)
			}
			last = l.Grant().Token
			<-inside
			_ = l.Release(bounded(t)) // it may say that the connection is gone: then the lease lapses
		}
		timer.Stop()
		began := time.Now()
		next := acquire(t, other, ask("cut", fmt.Sprint("other ", i)))
		if took := time.Since(began); took > req.TTL+soonEnough {
			t.Fatalf("round %d: stranded for %v", i, took)
		}
		if next.Grant().Token <= last {
			t.Fatalf("token %d after %d", next.Grant().Token, last)
		}
		last = next.Grant().Token
		release(t, next)
	}
}

// Three processes that contend never meet, and their tokens rise; also if one is killed in the middle of it.
func TestProcesses(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprint("Session=", session), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens")
			req := ask(fmt.Sprint("contended ", session), "x")
			req.TTL = 5 * time.Second // which a busy machine does not outlast
			var procs []*livetest.Child
			for i := range 4 {
				req.Owner = fmt.Sprint("process ", i, " ")
				contend := jobtest.Job{Role: "contend", Req: req, Rounds: 40, File: path}
				procs = append(procs, livetest.StartChild(t, job{Job: contend, DSN: server.DSN(), Session: session}))
			}
			time.Sleep(150 * time.Millisecond) // in the middle of it
			procs[3].Kill()
			for _, p := range procs[:3] {
				p.Expect("done")
				p.Wait()
			}
			jobtest.Rising(t, path, 3*40)
		})
	}
}

// A waiter that was killed is passed, soon after its process counts as dead.
func killedWaiter(t *testing.T, server *mysqltest.Server) {
	d1, d2 := open(t, dial(t, server.DSN())), open(t, dial(t, server.DSN()))
	l := acquire(t, d1, ask("queue", "holder"))
	first := hold(t, server.DSN(), false, ask("queue", "first"))
	livetest.Await(t, "waiter", func() error {
		st, err := d1.Status(t.Context(), "queue")
		if err == nil && len(st.Waiters) == 0 {
			err = driver.ErrLost
		}
		return err
	})
	w := jobtest.Waiting(t, d2, ask("queue", "second"))
	first.Kill()
	began := time.Now()
	release(t, l)
	w.Get(t)
	took := w.At.Sub(began)
	if took > 5*time.Second {
		t.Errorf("granted %v after the first in the queue was killed", took)
	}
	t.Logf("granted %v after the first in the queue was killed", took)
}

// A waiter that lives keeps its place, however long it waits.
func keepsItsPlace(t *testing.T, server *mysqltest.Server) {
	d1, d2, d3 := open(t, dial(t, server.DSN())), open(t, dial(t, server.DSN())), open(t, dial(t, server.DSN()))
	l := acquire(t, d1, ask("place", "holder"))
	first := jobtest.Waiting(t, d2, ask("place", "first"))
	second := jobtest.Waiting(t, d3, ask("place", "second"))
	time.Sleep(4500 * time.Millisecond) // longer than a process counts that says nothing
	if st, err := d1.Status(bounded(t), "place"); err != nil || len(st.Waiters) != 2 || st.Waiters[0].Owner != "first" {
		t.Errorf("waiters = %+v, %v; want the first and the second", st.Waiters, err)
	}
	began := time.Now()
	release(t, l)
	next := first.Get(t)
	took := first.At.Sub(began)
	if took > soonEnough {
		t.Errorf("granted after %v", took)
	}
	release(t, next)
	next = second.Get(t)
	release(t, next)
}

// What could not be withdrawn is, when the way is free again.
func withdrawnLater(t *testing.T, server *mysqltest.Server) {
	proxy := livetest.NewProxy(t, server.Addr())
	d1, d2 := open(t, dial(t, server.DSN())), open(t, dial(t, mysqltest.DSN(proxy.Addr())))
	l := acquire(t, d1, ask("owed", "a"))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := d2.Acquire(ctx, ask("owed", "b"))
		gone <- err
	}()
	livetest.Await(t, "waiter", func() error {
		st, err := d1.Status(t.Context(), "owed")
		if err == nil && len(st.Waiters) == 0 {
			err = driver.ErrLost
		}
		return err
	})
	acquire(t, d1, ask("other", "a"))
	jobtest.Waiting(t, d2, ask("other", "keeps the process alive"))
	heal := proxy.Sever()
	cancel()
	if err := <-gone; err == nil {
		t.Fatal("granted")
	}
	heal()
	release(t, l)
	began := time.Now()
	release(t, acquire(t, d1, ask("owed", "c")))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a waiter that gave up was in the way for %v", took)
	}
}

// A server that has no connection left can't take a withdrawal. The driver tries again, and less and
// less often.
func withdrawnFromFull(t *testing.T, server *mysqltest.Server) {
	// So many calls come in two seconds at most. Without pauses that grow there would be forty.
	const most = 20
	full, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	calls := make(chan time.Time, 1000)
	go func() {
		for {
			c, err := full.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "\x1b\x00\x00\x00\xff\x10\x04#08004Too many connections") // error 1040
			c.Close()
			calls <- time.Now()
		}
	}()
	proxy := livetest.NewProxy(t, server.Addr())
	holder, d := open(t, dial(t, server.DSN())), open(t, dial(t, mysqltest.DSN(proxy.Addr())))
	release(t, acquire(t, d, ask("full", "b"))) // what is opened once is open
	l := acquire(t, holder, ask("full", "a"))
	w := jobtest.Waiting(t, d, ask("full", "b"))
	proxy.Redirect(full.Addr().String())
	proxy.Cut()
	w.Cancel()
	if err := w.End(t); err == nil {
		t.Fatal("granted")
	}
	began, n := time.Now(), 0
	for at := range calls {
		if at.Sub(began) > 2*time.Second {
			break
		}
		if at.After(began) {
			n++
		}
	}
	if n > most {
		t.Errorf("%d calls in two seconds at a server that is full, want at most %d", n, most)
	}
	proxy.Redirect(server.Addr())
	release(t, l)
}

// A hold counts from before it was asked for, also if the answer is slow: the server's lease runs already.
func slowAnswer(t *testing.T, server *mysqltest.Server) {
	const late = 200 * time.Millisecond
	proxy := livetest.NewProxy(t, server.Addr())
	d := open(t, dial(t, mysqltest.DSN(proxy.Addr())))
	reader := ask("slow shared", "a")
	reader.Shared = true
	for _, req := range []driver.Request{ask("slow", "a"), reader} {
		release(t, acquire(t, d, req)) // everything is prepared
		proxy.Delay(0, late)
		l := acquire(t, d, req)
		if got := driver.Now().Sub(l.Grant().Start); got < late-10*time.Millisecond {
			t.Errorf("shared %v: granted %v ago, by an answer that took %v", req.Shared, got, late)
		}
		if r := d.Renew(bounded(t), []driver.Lease{l})[0]; r.Err != nil || driver.Now().Sub(r.Start) < late-10*time.Millisecond {
			t.Errorf("shared %v: renewed %v ago, %v, by an answer that took %v", req.Shared, driver.Now().Sub(r.Start), r.Err, late)
		}
		proxy.Delay(0, 0)
		release(t, l)
	}
}
