package pglock_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

func TestSession(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "max_connections=200")
	pool := dial(t, server.URL())
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *pgtest.Server, *pgxpool.Pool)
	}{
		{"Connections", sessionConnections},
		{"TellsOfItsEnd", tellsOfItsEnd},
		{"Stranger", foreignLocker},
		{"KeysOfOthers", keysOfOthers},
		{"OneKey", oneKey},
		{"DeadWaiterIsSkipped", deadWaiterIsSkipped},
		{"EndsWhileGranted", endsWhileGranted},
		{"WaiterOfEndedMain", waiterOfEndedMain},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server, pool) })
	}
}

// named returns a pool whose connections can be identified by the end of their application name.
func named(t *testing.T, server *pgtest.Server, name string) *pgxpool.Pool {
	return dialWith(t, server.URL(), settings("application_name", name))
}

// connections returns how many sessions of a driver with a pool of this name there are.
func connections(t *testing.T, pool *pgxpool.Pool, name string) int {
	return query[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'snib % "+name+"'")
}

// sessionConnections checks that holds share a connection, and that waiters have a bounded number.
func sessionConnections(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d, other := newSession(t, named(t, server, "many")), newSession(t, pool)
	const most = 32
	var waiters []*livetest.Waiter
	var theirs []driver.Lease
	for i := range most {
		l := acquire(t, d, request(fmt.Sprint("mine ", i), "a"))
		defer release(t, l)
		theirs = append(theirs, acquire(t, other, request(fmt.Sprint("theirs ", i), "b")))
	}
	if got := connections(t, pool, "many"); got != 1 {
		t.Errorf("a process with %d holds has %d connections, want 1", most, got)
	}
	for i := range theirs {
		waiters = append(waiters, livetest.Waiting(t, d, request(fmt.Sprint("theirs ", i), "a")))
	}
	if got := connections(t, pool, "many"); got != 1+most {
		t.Errorf("a process with %d waiters has %d connections, want one more than waiters", most, got)
	}
	var full atomic.Bool
	req := request("mine 0", "b")
	req.OnWait = func(err error) {
		if errors.Is(err, driver.ErrFull) {
			full.Store(true)
		}
	}
	last := livetest.Acquiring(t, d, req)
	livetest.Await(t, "waiter that gets no connection", func() error {
		if !full.Load() {
			return errors.New("it was not told")
		}
		return nil
	})
	for i, l := range theirs {
		release(t, l)
		release(t, waiters[i].Get(t))
	}
	last.Cancel()
	if err := last.End(t); err == nil {
		t.Error("a waiter got a lock that is held")
	}
	livetest.Await(t, "end of idle connections", func() error {
		if got := connections(t, pool, "many"); got != 1 {
			return fmt.Errorf("there are %d connections", got)
		}
		return nil
	})
}

// tellsOfItsEnd has the server end a session: all its holders are told.
func tellsOfItsEnd(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, named(t, server, "ended"))
	l1, told1 := livetest.AcquireTold(t, d, request("ended 1", "a"))
	l2, told2 := livetest.AcquireTold(t, d, request("ended 2", "a"))
	told := []<-chan error{told1, told2}
	w := livetest.Waiting(t, newSession(t, pool), request("ended 1", "b"))
	must(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '% ended'")
	for i, l := range []driver.Lease{l1, l2} {
		livetest.AwaitLoss(t, told[i], livetest.Patience)
		if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release after the loss = %v, want ErrLost", err)
		}
	}
	w.Get(t)
	release(t, acquire(t, d, request("ended 2", "c"))) // in a new session
}

// foreignLocker has a client that takes the advisory lock directly.
func foreignLocker(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool, pglock.Keys(func(string) int64 { return 42 }))
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
	w := livetest.Waiting(t, d, request("stranger", "a"))
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
	for _, tt := range []struct {
		name string
		key  func(string) int64
		try  string
	}{
		{"Name", pglock.NameKey,
			"pg_try_advisory_lock(('x' || substr(encode(sha256('snib/1:job'), 'hex'), 1, 16))::bit(64)::bigint)"},
		{"Negative", func(string) int64 { return -5 }, "pg_try_advisory_lock(-5)"},
		{"Zero", func(string) int64 { return 0 }, "pg_try_advisory_lock(0)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newSession(t, pool, pglock.Keys(tt.key))
			l := acquire(t, d, request("job", "a"))
			if query[bool](t, pool, "SELECT "+tt.try) {
				t.Errorf("%s is free while the lock is held", tt.try)
			}
			if st, err := d.Status(t.Context(), "job"); err != nil || len(st.Holders) != 1 ||
				st.Holders[0].Token != l.Grant().Token {
				t.Errorf("Status = %+v, %v; want the holder", st, err)
			}
			release(t, l)
			if !query[bool](t, pool, "SELECT "+strings.Replace(tt.try, "_lock(", "_xact_lock(", 1)) {
				t.Errorf("%s is not free after the release", tt.try)
			}
		})
	}
}

// oneKey checks that names with the same key exclude each other in one session, where the server
// would grant them.
func oneKey(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool, pglock.Keys(func(string) int64 { return 7 }))
	slots := noWait("one key", "a")
	slots.Slots = 2
	if _, err := d.Acquire(t.Context(), slots); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Acquire of a semaphore = %v, want ErrInvalid", err)
	}
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

// deadWaiterIsSkipped kills the process of a waiter, of which others see what it is, and no secret.
func deadWaiterIsSkipped(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	l := acquire(t, d, request("dead waiter", "a"))
	p := hold(t, server.URL(), true, request("dead waiter", "b"))
	livetest.Await(t, "waiter", func() error {
		st, err := d.Status(t.Context(), "dead waiter")
		if err == nil && len(st.Waiters) != 1 {
			err = fmt.Errorf("Status = %+v", st)
		} else if err == nil && (st.Waiters[0].Holder.PID == 0 || st.Waiters[0].Holder.Host == "" || st.Waiters[0].ID != "") {
			t.Fatalf("Status = %+v, want the process of the waiter, and not its secret", st)
		}
		return err
	})
	p.Kill()
	w := livetest.Waiting(t, newSession(t, pool), request("dead waiter", "c"))
	release(t, l)
	release(t, w.Get(t))
}

// TestSessionPooled connects through poolers.
func TestSessionPooled(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	transaction, session := pgtest.Pool(t, server, "transaction"), pgtest.Pool(t, server, "session")
	for _, pooler := range []*pgtest.Server{transaction, session} {
		_, err := newSession(t, dial(t, pooler.URL())).Acquire(t.Context(), noWait("pooled", "a"))
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "pooler") {
			t.Errorf("Acquire through a pooler = %v, want ErrInvalid with the reason", err)
		}
	}
	past := newSession(t, dial(t, transaction.URL()), pglock.Listen(dial(t, server.URL()).Config().ConnConfig))
	l := acquire(t, past, noWait("pooled", "a"))
	mustBeHeld(t, past, "pooled", "in the same session")
	if st, err := past.Status(t.Context(), "pooled"); err != nil || len(st.Holders) != 1 {
		t.Errorf("Status through a pooler = %+v, %v", st, err)
	}
	release(t, l)
}

// endsWhileGranted cuts a session off when the server has given it the lock. The same Acquire opens
// another session.
func endsWhileGranted(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	direct, err := pgx.ParseConfig(pgtest.URL(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	d, other := newSession(t, pool, pglock.Listen(direct)), newSession(t, pool)
	lost := proxy.LoseAnswers(1, livetest.ThenClose, "\x00\x00\x00\x03try") // the parameter of the statement
	l := acquire(t, d, request("ends", "a"))
	<-lost
	next := livetest.Waiting(t, other, request("ends", "b"))
	next.Running(t, "although the lease is held in a second session")
	if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew = %v", err)
	}
	release(t, l)
	release(t, next.Get(t))
}

// waiterOfEndedMain ends the session in which a process has asked for a lock that it now waits
// for in another one: the wait goes on.
func waiterOfEndedMain(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	l := acquire(t, newSession(t, pool), request("goes on", "a"))
	w := livetest.Waiting(t, newSession(t, named(t, server, "waits")), request("goes on", "b"))
	must(t, pool, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name LIKE '% waits' AND wait_event_type <> 'Lock'`)
	livetest.Await(t, "wait in a new session", func() error {
		if n := connections(t, pool, "waits"); n != 2 {
			return fmt.Errorf("there are %d connections", n)
		}
		return nil
	})
	w.Running(t, "while another holds")
	release(t, l)
	release(t, w.Get(t))
}

// TestSessionOfDemoted demotes a primary that lives on: it answers, and takes no writes. Its
// locks say nothing about those of the primary that replaces it.
func TestSessionOfDemoted(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	d := newSession(t, pool, pglock.Timeout(3*time.Second))
	l, told := livetest.AcquireTold(t, d, request("demoted", "a"))
	other := newSession(t, pool, pglock.Timeout(3*time.Second))
	w := livetest.Acquiring(t, other, request("demoted", "b"))
	must(t, pool, "ALTER SYSTEM SET default_transaction_read_only = on")
	must(t, pool, "SELECT pg_reload_conf()")
	livetest.AwaitLoss(t, told, livetest.Patience) // by the keep-alive, without a renewal
	if err := l.Release(t.Context()); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Release = %v, want ErrLost", err)
	}
	for _, d := range []driver.Driver{d, newSession(t, pool)} {
		if _, err := d.Acquire(t.Context(), noWait("new", "c")); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("Acquire on a server that refuses writes = %v, want ErrUnavailable", err)
		}
	}
	if err := w.End(t); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a waiter on a server that refuses writes got %v, want ErrUnavailable", err)
	}
}

// TestFullLockTable takes more locks in a session than the server has room for. The request that
// is too much is refused, and all others stay.
func TestFullLockTable(t *testing.T) {
	server := pgtest.Start(t, "max_connections=10", "max_locks_per_transaction=10", "superuser_reserved_connections=0", "max_wal_senders=0")
	d := newSession(t, dial(t, server.URL()))
	var all []driver.Lease
	for {
		l, err := d.Acquire(t.Context(), noWait(fmt.Sprint("lock ", len(all)), "a"))
		if err == nil {
			all = append(all, l)
			continue
		}
		if !errors.Is(err, driver.ErrFull) || !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("Acquire of lock %d = %v, want ErrFull", len(all), err)
		}
		break
	}
	for i, r := range d.Renew(t.Context(), all) {
		if r.Err != nil {
			t.Fatalf("Renew of lock %d of %d = %v", i, len(all), r.Err)
		}
	}
	for _, l := range all[:len(all)/2] {
		release(t, l)
	}
	release(t, acquire(t, d, noWait("one more", "a")))
}
