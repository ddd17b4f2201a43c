package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

// plain returns a request that can have a plain lease.
func plain(name, owner string) driver.Request {
	req := request(name, owner)
	req.UniqueOwner = true
	return req
}

func plainNoWait(name, owner string) driver.Request {
	req := plain(name, owner)
	req.NoWait = true
	return req
}

// TestPlain is about leases of sessions that have no row at first.
func TestPlain(t *testing.T) {
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	tests := []struct {
		name string
		run  func(*testing.T, *pgtest.Server, *pgxpool.Pool)
	}{
		{"WritesNothing", plainWritesNothing},
		{"RecordFollows", plainRecordFollows},
		{"Broken", plainBroken},
		{"BrokenForGood", plainBrokenForGood},
		{"OneOrderOfTokens", plainOneOrder},
		{"ClockBehindRow", plainClockBehindRow},
		{"QueueFirst", plainQueueFirst},
		{"Wakes", plainWakes},
		{"NoRowIsLeft", plainNoRowIsLeft},
		{"KilledHolder", plainKilledHolder},
		{"CutInTake", plainCutInTake},
		{"CutInRelease", plainCutInRelease},
		{"KindOfLock", plainKindOfLock},
		{"Owner", plainOwner},
		{"SameOwner", plainSameOwner},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server, pool) })
	}
}

// rowOf returns the number of holders and waiters in the row of a lock; -1 and -1 without a row.
func rowOf(t testing.TB, pool *pgxpool.Pool, name string) (holders, waiters int) {
	t.Helper()
	err := pool.QueryRow(t.Context(), "SELECT jsonb_array_length(holders), jsonb_array_length(waiters) FROM snib_sessions WHERE name = $1", name).
		Scan(&holders, &waiters)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, -1
	}
	if err != nil {
		t.Fatal(err)
	}
	return holders, waiters
}

// awaitRecord waits until the row of a lock has a holder.
func awaitRecord(t testing.TB, pool *pgxpool.Pool, name string) {
	t.Helper()
	livetest.Await(t, "record", func() error {
		if n, _ := rowOf(t, pool, name); n != 1 {
			return fmt.Errorf("the row has %d holders", n)
		}
		return nil
	})
}

// plainWritesNothing checks that cycles that end before a record is due have no row. On a slow
// machine a cycle may last longer, so it is enough that one name has none.
func plainWritesNothing(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	for i := range 50 {
		name := fmt.Sprint("nothing ", i)
		l := acquire(t, d, plain(name, "a"))
		if l.Grant().Token == 0 {
			t.Fatalf("a plain lease has no token")
		}
		release(t, l)
		if n, _ := rowOf(t, pool, name); n < 0 {
			return
		}
	}
	t.Errorf("50 locks that were taken and released have rows")
}

// plainRecordFollows checks that a lock is never shown as free while it is held, and that its
// record has the holder.
func plainRecordFollows(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, pool), newSession(t, pool)
	req := plain("follows", "a")
	req.Holder = driver.Holder{Host: "host.example", PID: 4711, Label: "label"}
	l := acquire(t, d, req)
	inRecordTime(t, func() error {
		st, err := other.Status(t.Context(), "follows")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("Status of a lock that was just taken = %+v, %v; want its holder", st, err)
		}
		h := st.Holders[0]
		if h.Foreign == "" && (h.Token != l.Grant().Token || h.Holder != req.Holder) {
			t.Errorf("the holder is %+v, want %+v with token %d", h, req.Holder, l.Grant().Token)
		}
		if h.Foreign != "" {
			return fmt.Errorf("the holder is %s", h.Foreign)
		}
		return nil
	})
	if a := d.Renew(t.Context(), []driver.Lease{l}); a[0].Err != nil {
		t.Errorf("Renew = %v", a[0].Err)
	}
	release(t, l)
	if n, _ := rowOf(t, pool, "follows"); n != 0 {
		t.Errorf("after the release the row has %d holders", n)
	}
}

// inRecordTime calls see until it has seen a record. On a slow machine the record may be late, but
// see must have waited for it.
func inRecordTime(t *testing.T, see func() error) {
	t.Helper()
	livetest.Await(t, "record", func() error {
		began := time.Now()
		err := see()
		if took := time.Since(began); err != nil && took < rows.RecordTimeout {
			t.Fatalf("%v after %v, without a wait of %v for the record", err, took, rows.RecordTimeout)
		}
		return err
	})
}

// plainBroken breaks a hold whose record has not been written yet.
func plainBroken(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, pool), newSession(t, pool)
	l, told := jobtest.AcquireTold(t, d, plain("plain broken", "a"))
	w := jobtest.Waiting(t, other, plain("plain broken", "b"))
	inRecordTime(t, func() error { return other.Break(t.Context(), "plain broken", "a", l.Grant().Token) })
	next := w.Get(t)
	jobtest.AwaitLoss(t, told, soonEnough)
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("token after the Break = %d, want more than %d", next.Grant().Token, l.Grant().Token)
	}
	release(t, next)
}

// plainBrokenForGood loses the answer to a record, breaks the hold, and checks that the driver
// does not write the record again.
func plainBrokenForGood(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	direct, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	d, other := newSession(t, dial(t, pgtest.URL(proxy.Addr())), pglock.Listen(direct)), newSession(t, pool)
	release(t, acquire(t, d, request("for good", "first"))) // so that there is a table
	lost := proxy.LoseAnswers(1, livetest.ThenHang, "for good", `"session":`)
	l, told := jobtest.AcquireTold(t, d, plain("for good", "a"))
	await(t, lost, "lost answer")
	if err := other.Break(t.Context(), "for good", "a", l.Grant().Token); err != nil {
		t.Fatalf("Break = %v", err)
	}
	jobtest.AwaitLoss(t, told, 3*soonEnough)
	awaitFree(t, other, "for good")
}

// plainOneOrder mixes all kinds of leases of one name, in several sessions.
func plainOneOrder(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d1, d2 := newSession(t, pool), newSession(t, pool)
	kinds := []func(*driver.Request){
		func(*driver.Request) {},
		func(r *driver.Request) { r.Fencing = driver.FencingDurable },
		func(r *driver.Request) { r.Tokens = 5000 },
		func(r *driver.Request) { r.UniqueOwner = false },
		func(r *driver.Request) { r.Shared = true },
		func(r *driver.Request) { r.Keep = true },
	}
	last := uint64(0)
	for i := range 60 {
		req := plain("order", fmt.Sprint("owner ", i))
		kinds[(i*i+i/7)%len(kinds)](&req)
		l := acquire(t, []*pglock.Driver{d1, d2}[i%2], req)
		if g := l.Grant(); g.Token <= last {
			t.Fatalf("hold %d, %+v, has token %d, want more than %d", i, req, g.Token, last)
		} else {
			last = g.Token + uint64(max(g.Tokens, 1)) - 1
		}
		release(t, l)
	}
}

// plainClockBehindRow has a row, and a floor, whose tokens are ahead of the clock.
func plainClockBehindRow(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	release(t, acquire(t, d, request("ahead", "first")))
	must(t, pool, "UPDATE snib_sessions SET token = token + 3600000000 WHERE name = 'ahead'")
	before := query[int64](t, pool, "SELECT token FROM snib_sessions WHERE name = 'ahead'")
	for _, owner := range []string{"a", "b"} {
		l := acquire(t, d, plain("ahead", owner))
		if got := int64(l.Grant().Token); got <= before {
			t.Errorf("token = %d, want more than %d", got, before)
		}
		before = int64(l.Grant().Token)
		release(t, l)
	}
}

// plainQueueFirst checks that a newcomer does not overtake a waiter, although the lock is free.
func plainQueueFirst(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d, newcomer := newSession(t, pool), newSession(t, pool)
	release(t, acquire(t, d, request("queue", "first")))
	// A waiter that lives and has not been notified yet.
	must(t, pool, `UPDATE snib_sessions SET waiters = jsonb_build_array(jsonb_build_object('owner', 'w', 'nonce', 'w-1', 'shared', false,
		'channel', 'snib_w', 'since', 0, 'until', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 3600000000)) WHERE name = 'queue'`)
	if _, err := newcomer.Acquire(t.Context(), plainNoWait("queue", "newcomer")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire while another waits = %v, want ErrHeld", err)
	}
}

// plainWakes checks that a release wakes the waiters one after the other, before they poll. The
// waiters of two processes take turns, so that two hand-overs without a notification would take a
// heartbeat interval together: whenever the polls are, each process polls once in it.
func plainWakes(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	l := acquire(t, d, plain("wakes", "first"))
	awaitRecord(t, pool, "wakes")
	drivers := []*pglock.Driver{newSession(t, pool), newSession(t, pool)}
	var all []*jobtest.Waiter
	for i := range 12 {
		all = append(all, jobtest.Waiting(t, drivers[i%2], plain("wakes", fmt.Sprint("waiter ", i))))
	}
	slack := livetest.Slack(t)
	began := time.Now()
	for _, w := range all {
		release(t, l)
		l = w.Get(t) // in the order of arrival
	}
	release(t, l)
	if took := time.Since(began); took > 2*rows.HeartbeatInterval+slack() {
		t.Errorf("12 hand-overs took %v, and 5 s or more would be polls: waiters were not notified", took)
	}
}

// plainNoRowIsLeft checks that leases that were queued, and had no record, leave nothing in the
// row.
func plainNoRowIsLeft(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d1, d2 := newSession(t, pool), newSession(t, pool)
	for i := range 10 {
		l := acquire(t, d1, plain("left", fmt.Sprint("a", i)))
		w := jobtest.Waiting(t, d2, plain("left", fmt.Sprint("b", i)))
		release(t, l)
		release(t, w.Get(t))
	}
	livetest.Await(t, "empty row", func() error {
		if h, w := rowOf(t, pool, "left"); h+w != 0 {
			return fmt.Errorf("%d holders and %d waiters", h, w)
		}
		return nil
	})
}

// plainKilledHolder kills a process that has a plain lease.
func plainKilledHolder(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	release(t, acquire(t, d, plain("killed", "first")))
	p := hold(t, server.URL(), true, plain("killed", "a"))
	p.Expect("held")
	w := jobtest.Waiting(t, d, plain("killed", "b"))
	p.Kill()
	release(t, w.Get(t))
}

// cutSession returns a driver whose session goes through a proxy.
func cutSession(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) (*pglock.Driver, *livetest.Proxy) {
	proxy := livetest.NewProxy(t, server.Addr())
	direct, err := pgx.ParseConfig(pgtest.URL(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	d := newSession(t, pool, pglock.Listen(direct))
	for range 2 { // so that the statements are prepared
		release(t, acquire(t, d, plain("prepared", "a")))
	}
	return d, proxy
}

// plainCutInTake loses the answer to a take, and with it the session.
func plainCutInTake(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d, proxy := cutSession(t, server, pool)
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "cut in take")
	l := acquire(t, d, plain("cut in take", "a")) // in a new session
	await(t, lost, "lost answer")
	mustBeHeld(t, newSession(t, pool), "cut in take", "after a cut")
	release(t, l)
	awaitFree(t, d, "cut in take")
}

// plainCutInRelease loses the answer to a release, and with it the session: the lock is free.
func plainCutInRelease(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d, proxy := cutSession(t, server, pool)
	l := acquire(t, d, plain("cut in release", "a"))
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "cut in release")
	err := l.Release(t.Context())
	await(t, lost, "lost answer")
	if err == nil {
		t.Errorf("Release without an answer = nil")
	}
	awaitFree(t, newSession(t, pool), "cut in release")
}

// plainKindOfLock checks that a lock without a row is no semaphore.
func plainKindOfLock(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, pool), newSession(t, pool)
	l := acquire(t, d, plain("kind", "a"))
	for _, wait := range []bool{false, true} {
		req := plain("kind", fmt.Sprint("b", wait))
		req.Slots, req.NoWait = 3, !wait
		if _, err := other.Acquire(t.Context(), req); !errors.Is(err, driver.ErrKind) {
			t.Errorf("Acquire of a slot of a lock = %v, want ErrKind", err)
		}
	}
	release(t, l)
}

// plainOwner checks that IsOwner knows a hold without a row, and keeps it.
func plainOwner(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, pool), newSession(t, pool)
	l := acquire(t, d, plain("plain owner", "a"))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if err := d.IsOwner(t.Context(), tx, "plain owner", l.Grant().Token); err != nil {
		t.Fatalf("IsOwner of a hold = %v", err)
	}
	released := make(chan error, 1)
	go func() { released <- l.Release(context.WithoutCancel(t.Context())) }()
	w := jobtest.Acquiring(t, other, plain("plain owner", "b"))
	time.Sleep(300 * time.Millisecond) // time for a few tries
	w.Running(t, "while the transaction keeps the lock")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, w.Get(t))
	<-released
}

// plainSameOwner checks that an owner gets its lock again, also if it must not wait.
func plainSameOwner(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	req := request("same owner", "a")
	first := acquire(t, d, req)
	req.NoWait = true
	again := acquire(t, d, req)
	if got, want := again.Grant().Token, first.Grant().Token; got != want {
		t.Errorf("the token = %d, want %d as before", got, want)
	}
	release(t, again)
	awaitFree(t, newSession(t, pool), "same owner")
}

// TestPlainFencing checks that a caller that requires durable tokens has its token in the row when
// Acquire returns.
func TestPlainFencing(t *testing.T) {
	server := pgtest.Start(t)
	d := newSession(t, dial(t, server.URL()))
	if info := d.Info(); info.Fencing != driver.FencingClock || info.FencingOnDemand != driver.FencingDurable {
		t.Errorf("Info of a session = %v tokens, %v on demand; want clock and durable", info.Fencing, info.FencingOnDemand)
	}
	locker, err := snib.New(d, snib.RequireFencing(snib.FencingDurable))
	if err != nil {
		t.Fatalf("New with RequireFencing = %v", err)
	}
	defer locker.Close()
	lock, err := locker.Acquire(t.Context(), "durable")
	if err != nil {
		t.Fatal(err)
	}
	pool := dial(t, server.URL())
	if got := query[int64](t, pool, "SELECT token FROM snib_sessions WHERE name = 'durable'"); uint64(got) < lock.Token() {
		t.Errorf("the row of a hold with a durable token %d has token %d", lock.Token(), got)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// await waits for a channel to be closed.
func await(t testing.TB, closed <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Fatalf("no %s within 20 s", what)
	}
}
