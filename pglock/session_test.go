package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

func TestSession(t *testing.T) {
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	tests := []struct {
		name string
		run  func(*testing.T, *pgtest.Server, *pgxpool.Pool)
	}{
		{"OneConnection", oneConnection},
		{"TellsOfItsEnd", tellsOfItsEnd},
		{"Stranger", foreignLocker},
		{"KeysOfOthers", keysOfOthers},
		{"OneKey", oneKey},
		{"UnlockedByStranger", unlockedByForeignClient},
		{"BreakFreesTheKey", breakFreesTheKey},
		{"DeadSessionIsFree", deadSessionIsFree},
		{"EndsWhileGranted", endsWhileGranted},
		{"GivenUpWhileGranted", givenUpWhileGranted},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server, pool) })
	}
}

// named returns a pool whose connections can be identified by their application name.
func named(t *testing.T, server *pgtest.Server, name string) *pgxpool.Pool {
	return dialWith(t, server.URL(), settings("application_name", name))
}

// oneConnection checks that many holds and waiters need one connection beside the pool.
func oneConnection(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["application_name"] = "many"
	})), newSession(t, pool)
	var waiters []*jobtest.Waiter
	var theirs []driver.Lease
	for i := range 20 {
		l := acquire(t, d, request(fmt.Sprint("mine ", i), "a"))
		mustBeHeld(t, d, fmt.Sprint("mine ", i), "in the same session")
		defer release(t, l)
		theirs = append(theirs, acquire(t, other, request(fmt.Sprint("theirs ", i), "b")))
		waiters = append(waiters, jobtest.Waiting(t, d, request(fmt.Sprint("theirs ", i), "a")))
	}
	if got := query[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'many'"); got > 2 {
		t.Errorf("a process with 20 holds and 20 waiters has %d connections, want the pool's one and one more", got)
	}
	for i, l := range theirs {
		release(t, l)
		release(t, waiters[i].Get(t))
	}
}

// tellsOfItsEnd has the server end a session: all its holders are told.
func tellsOfItsEnd(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, named(t, server, "ended"))
	l1, told1 := jobtest.AcquireTold(t, d, request("ended 1", "a"))
	l2, told2 := jobtest.AcquireTold(t, d, request("ended 2", "a"))
	told := []<-chan error{told1, told2}
	w := jobtest.Waiting(t, newSession(t, pool), request("ended 1", "b"))
	must(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'")
	for i, l := range []driver.Lease{l1, l2} {
		jobtest.AwaitLoss(t, told[i], time.Second)
		if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release after the loss = %v, want ErrLost", err)
		}
	}
	w.Get(t)
	release(t, acquire(t, d, request("ended 2", "c"))) // in a new session
}

// foreignLocker has a client that takes the advisory lock directly.
func foreignLocker(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool, pglock.Keys(func(string) pglock.Key { return pglock.Wide(42) }))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(42)"); err != nil {
		t.Fatal(err)
	}
	mustBeHeld(t, d, "stranger", "of a lock that a stranger has")
	if st, err := d.Status(t.Context(), "stranger"); err != nil || len(st.Holders) != 1 || st.Holders[0].Foreign == "" {
		t.Errorf("Status after a refusal = %+v, %v, want a foreign client", st, err)
	}
	w := jobtest.Acquiring(t, d, request("stranger", "a"))
	time.Sleep(300 * time.Millisecond) // time for a few tries
	w.Running(t, "while a stranger has the lock")
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock(42)"); err != nil {
		t.Fatal(err)
	}
	l := w.Get(t)
	if query[bool](t, pool, "SELECT pg_try_advisory_lock(42)") {
		t.Errorf("a stranger gets the advisory lock of a hold")
	}
	release(t, l)
	if !query[bool](t, pool, "SELECT pg_try_advisory_xact_lock(42)") {
		t.Errorf("a stranger does not get the advisory lock after the release")
	}
}

// keysOfOthers checks with the server that the keys are those that other programs use.
func keysOfOthers(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	tests := []struct {
		name, lock string
		key        func(string) pglock.Key
		try        string
	}{
		{"Name", "job", pglock.NameKey, "pg_try_advisory_lock(('x' || substr(encode(sha256('snib/1:job'), 'hex'), 1, 16))::bit(64)::bigint)"},
		{"HashText", "job", pglock.HashText, "pg_try_advisory_lock(hashtext('job'))"},
		{"HashTextExtended", "job", func(n string) pglock.Key { return pglock.HashTextExtended(n, 7) }, "pg_try_advisory_lock(hashtextextended('job', 7))"},
		{"Pair", "job", func(string) pglock.Key { return pglock.Pair(-1, 2) }, "pg_try_advisory_lock(-1, 2)"},
		{"Zero", "job", func(string) pglock.Key { return pglock.Key{} }, "pg_try_advisory_lock(0)"},
		{"Ruby", "MyLock", pglock.RubyKey, "pg_try_advisory_lock(1883230595, 0)"},
		{"DotNetText", "MyLock", pglock.DotNetKey, "pg_try_advisory_lock(-1679399172, 2061500415)"},
		{"DotNetHash", "MyLockName", pglock.DotNetKey, "pg_try_advisory_lock(4062898426641073528)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newSession(t, pool, pglock.Keys(tt.key))
			l := acquire(t, d, request(tt.lock, "a"))
			if query[bool](t, pool, "SELECT "+tt.try) {
				t.Errorf("%s is free while %q is held", tt.try, tt.lock)
			}
			release(t, l)
			if !query[bool](t, pool, "SELECT "+strings.Replace(tt.try, "_lock(", "_xact_lock(", 1)) {
				t.Errorf("%s is not free after the release of %q", tt.try, tt.lock)
			}
		})
	}
}

// oneKey checks that names with the same key exclude each other in one session, where the server
// would grant them.
func oneKey(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool, pglock.Keys(func(string) pglock.Key { return pglock.Wide(7) }))
	l := acquire(t, d, request("one key", "a"))
	mustBeHeld(t, d, "the same key", "of a name with the same key")
	release(t, l)
	shared := request("one key", "a")
	shared.Shared = true
	l = acquire(t, d, shared)
	shared.Name = "the same key"
	release(t, acquire(t, d, shared))
	mustBeHeld(t, d, "the same key", "of a name whose key has a reader")
	release(t, l)
}

// unlockedByForeignClient has the session unlock an advisory lock that it does not hold: the
// session must not trust itself after that.
func unlockedByForeignClient(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	var forgotten atomic.Bool
	d := newSession(t, named(t, server, "doubt"), pglock.Keys(func(name string) pglock.Key {
		if forgotten.Load() {
			return pglock.NameKey("another name")
		}
		return pglock.NameKey(name)
	}))
	l := acquire(t, d, request("doubt", "a"))
	_, told := jobtest.AcquireTold(t, d, request("doubt too", "a"))
	const pid = "SELECT pid FROM pg_stat_activity WHERE application_name = 'doubt' AND query LIKE '%advisory%'"
	before := query[int](t, pool, pid)
	forgotten.Store(true)
	release(t, l)
	jobtest.AwaitLoss(t, told, time.Second) // a session whose unlock failed must end
	livetest.Await(t, "end of the connection", func() error {
		if n := query[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", before); n > 0 {
			return errors.New("it is still there")
		}
		return nil
	})
}

// breakFreesTheKey breaks a hold whose process lives.
func breakFreesTheKey(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d1, d2 := newSession(t, pool), newSession(t, pool)
	l, told := jobtest.AcquireTold(t, d1, request("broken", "a"))
	if err := d2.Break(t.Context(), "broken", "a", l.Grant().Token); err != nil {
		t.Fatalf("Break = %v", err)
	}
	next := acquire(t, d2, request("broken", "b"))
	select {
	case err := <-told:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("OnLost was called with %v, want ErrLost", err)
		}
	default:
		t.Errorf("the lock was given to another, and its holder was not told")
	}
	release(t, next)
}

// deadSessionIsFree has a row with a holder whose process was killed.
func deadSessionIsFree(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	p := hold(t, server.URL(), true, request("dead", "a"))
	p.Expect("held")
	d := newSession(t, pool)
	mustBeHeld(t, d, "dead", "of a lock that another process has")
	p.Kill()
	livetest.Await(t, "lease", func() error {
		l, err := d.Acquire(t.Context(), noWait("dead", "b"))
		if err == nil {
			err = l.Release(t.Context())
		}
		return err
	})
}

// TestSessionPooled connects through poolers.
func TestSessionPooled(t *testing.T) {
	server := pgtest.Start(t)
	transaction, session := pgtest.Pool(t, server, "transaction"), pgtest.Pool(t, server, "session")
	direct := dial(t, server.URL()).Config().ConnConfig
	tests := []struct {
		name    string
		url     string
		opts    []pglock.Option
		refused bool
	}{
		{"Transaction", transaction.URL(), nil, true},
		{"Session", session.URL(), nil, true},
		{"SessionSaid", session.URL(), []pglock.Option{pglock.SessionPooler()}, false},
		{"Past", transaction.URL(), []pglock.Option{pglock.Listen(direct)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newSession(t, dial(t, tt.url), tt.opts...)
			l, err := d.Acquire(t.Context(), noWait("pooled "+tt.name, "a"))
			if !tt.refused {
				if err != nil {
					t.Fatalf("Acquire = %v", err)
				}
				release(t, l)
				return
			}
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "pooler") {
				t.Errorf("Acquire through a pooler = %v, want ErrInvalid with the reason", err)
			}
		})
	}
}

// endsWhileGranted cuts a session off after the row has granted a lease, when the advisory lock
// is requested.
func endsWhileGranted(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	direct, err := pgx.ParseConfig(pgtest.URL(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	d, other := newSession(t, pool, pglock.Listen(direct)), newSession(t, pool)
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "pg_try_advisory_lock($1::bigint)")
	jobtest.EndsWhileGranted(t, d, other, lost)
}

// givenUpWhileGranted cancels a request when the advisory lock is requested.
func givenUpWhileGranted(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	direct, err := pgx.ParseConfig(pgtest.URL(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	d, other := newSession(t, pool, pglock.Listen(direct)), newSession(t, pool)
	for _, req := range []driver.Request{request("given up", "a"), plain("given up", "b")} {
		release(t, acquire(t, d, request("given up", "first"))) // so that there is a session
		sent := proxy.Sent("given up")
		heal := proxy.Stall()
		ctx, cancel := context.WithCancelCause(t.Context())
		answer := goAcquire(ctx, d, req)
		await(t, sent, "request")
		enough := errors.New("enough")
		cancel(enough)
		if err := <-answer; !errors.Is(err, enough) {
			t.Errorf("Acquire = %v, want %v", err, enough)
		}
		heal()
		awaitFree(t, other, "given up")
	}
}
