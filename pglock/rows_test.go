package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

// TestCrash kills the server while another transaction is open. The server's settings delay the
// writing of its log, and the users' own commits don't wait for it: what was granted must still
// be there.
func TestCrash(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "wal_writer_delay=10s")
	pool := dialWith(t, server.URL(), settings("synchronous_commit", "off"))
	d := newDriver(t, pool)
	release(t, acquire(t, d, request("warm", "up")))

	open, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback(context.Background())
	if _, err := open.Exec(t.Context(), "CREATE TABLE other (n int); INSERT INTO other VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for i := range 20 {
		l := acquire(t, d, request("cycle", fmt.Sprint("a", i)))
		last = l.Grant().Token
		release(t, l)
	}
	held := acquire(t, d, request("held", "a"))
	// This waiter waits across the crash.
	w := livetest.Waiting(t, newDriver(t, dial(t, server.URL())), request("held", "b"))
	short := request("kept", "a")
	short.TTL, short.MinHold = time.Second, time.Hour
	release(t, acquire(t, d, short))
	server.Kill()
	server.Restart()

	other := newDriver(t, dial(t, server.URL()))
	mustBeHeld(t, other, "held", "of what was granted just before the crash")
	livetest.Await(t, "end of what MinHold does not keep", func() error {
		st, err := other.Status(t.Context(), "kept")
		if err == nil && len(st.Holders) > 0 && st.Holders[0].Left <= short.TTL {
			err = fmt.Errorf("it is held for another %v", st.Holders[0].Left)
		}
		return err
	})
	mustBeHeld(t, other, "kept", "of what MinHold kept just before the crash")
	if got := acquire(t, other, request("cycle", "b")).Grant().Token; got <= last {
		t.Errorf("Token after the crash = %d, want more than %d", got, last)
	}
	livetest.Await(t, "renewal after the crash", func() error { return d.Renew(t.Context(), []driver.Lease{held})[0].Err })
	release(t, held)
	if got := w.Get(t).Grant().Token; got <= held.Grant().Token {
		t.Errorf("Token of the next holder = %d, want more than %d", got, held.Grant().Token)
	}
}

// TestCut cuts connections in each state of an acquisition.
func TestCut(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	proxy := livetest.NewProxy(t, server.Addr())
	pool := dial(t, pgtest.URL(proxy.Addr()))
	d1, d2 := newDriver(t, pool), newDriver(t, dial(t, server.URL()))

	t.Run("Waiting", func(t *testing.T) {
		l := acquire(t, d2, request("waiting", "a"))
		w := livetest.Waiting(t, d1, request("waiting", "b"))
		proxy.Cut()
		// It listens again, polls, or has noticed nothing: each must work.
		time.Sleep(50 * time.Millisecond)
		release(t, l)
		release(t, w.Get(t))
	})
	t.Run("Holding", func(t *testing.T) {
		l := acquire(t, d1, request("holding", "a"))
		proxy.Cut()
		livetest.Await(t, "renewal", func() error { return d1.Renew(t.Context(), []driver.Lease{l})[0].Err })
		mustBeHeld(t, d2, "holding", "while it is held")
		release(t, l)
	})
	t.Run("Acquiring", func(t *testing.T) {
		lost := proxy.LoseAnswers(1, livetest.ThenClose, "acquiring")
		l, err := d1.Acquire(t.Context(), request("acquiring", "a"))
		<-lost
		if err != nil {
			t.Fatalf("Acquire whose answer is lost = %v, want a lease: it asks again", err)
		}
		mustBeHeld(t, d2, "acquiring", "of what was granted when it was asked for again")
		release(t, l)
		release(t, acquire(t, d2, noWait("acquiring", "b")))
	})
	t.Run("Granting", func(t *testing.T) {
		l := acquire(t, d2, request("granting", "a"))
		w := livetest.Waiting(t, d1, request("granting", "b"))
		// It listens by then, so that its next request is for the lock.
		time.Sleep(300 * time.Millisecond)
		// More answers than there can be stale connections.
		lost := proxy.LoseAnswers(int(pool.Config().MaxConns)+4, livetest.ThenClose, "granting")
		release(t, l)
		<-lost
		release(t, w.Get(t)) // the driver has sent its request again
		release(t, acquire(t, d2, noWait("granting", "c")))
	})
	t.Run("Releasing", func(t *testing.T) {
		l := acquire(t, d1, request("releasing", "a"))
		lost := proxy.LoseAnswers(1, livetest.ThenClose, "releasing")
		if err := l.Release(t.Context()); err != nil {
			t.Fatalf("Release whose answer is lost = %v, want nil: it asks again", err)
		}
		<-lost
		next := acquire(t, d2, request("releasing", "b"))
		if err := l.Release(t.Context()); err != nil && !errors.Is(err, driver.ErrLost) {
			t.Errorf("Release said again = %v, want nil or ErrLost", err)
		}
		mustBeHeld(t, d1, "releasing", "after a release that was said again")
		release(t, next)
	})
	t.Run("ReleasingMany", func(t *testing.T) {
		const n = 20
		var all [n]driver.Lease
		for i := range all {
			all[i] = acquire(t, d1, request(fmt.Sprint("one of many ", i), "a"))
		}
		lost := proxy.LoseAnswers(1, livetest.ThenClose, "one of many 19") // alone, or in a batch
		var releasing sync.WaitGroup
		for _, l := range all {
			releasing.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release = %v", err)
				}
			})
		}
		releasing.Wait()
		<-lost
		for i := range all {
			release(t, acquire(t, d2, noWait(fmt.Sprint("one of many ", i), "b")))
		}
	})
}

// TestSettings lets users with different settings contend for a lock.
func TestSettings(t *testing.T) {
	server := database(t)
	for _, tt := range []struct {
		name string
		set  []string
	}{
		{"Serializable", []string{"default_transaction_isolation", "serializable"}},
		{"RepeatableRead", []string{"default_transaction_isolation", "repeatable read"}},
		{"Timeouts", []string{"lock_timeout", "20ms", "statement_timeout", "200ms", "idle_in_transaction_session_timeout",
			"100ms"}},
		{"NotDurable", []string{"synchronous_commit", "off"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const drivers, rounds = 4, 10
			var inside atomic.Int32
			var last atomic.Uint64 // token
			var wg sync.WaitGroup
			for i := range drivers {
				d := newDriver(t, dialWith(t, server.URL(), settings(tt.set...)))
				for g := range 2 {
					wg.Go(func() {
						for r := range rounds {
							l, err := d.Acquire(t.Context(), request(tt.name, fmt.Sprint(i, g, r)))
							if err != nil {
								t.Errorf("Acquire = %v", err)
								return
							}
							token := l.Grant().Token
							if before := last.Swap(token); inside.Add(1) > 1 || token <= before {
								t.Errorf("token %d after %d, beside %d others", token, before, inside.Load()-1)
							}
							time.Sleep(time.Millisecond) // in which others could come in
							inside.Add(-1)
							if err := l.Release(t.Context()); err != nil {
								t.Errorf("Release = %v", err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
		})
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *pgtest.Server, *pgxpool.Pool)
	}{
		{"CreatedByMany", createdByMany},
		{"Encodings", encodings},
		{"TokenAheadOfClock", tokenAheadOfClock},
		{"Prune", func(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
			rowstest.PruneKeepsTokens(t, lockTable(t, server, pool, "pruned"))
			rowstest.PruneIgnoresHugeTokens(t, lockTable(t, server, pool, "forged"))
		}},
		{"WantedBeforeListening", wantedBeforeListening},
		{"Unlisted", unusableDatabases},
		{"StalledInTransaction", stalledInTransaction},
		{"DiskError", diskError},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, server, pool) })
	}
}

// encodings has clients whose connections have different encodings contend for a lock.
func encodings(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	must(t, pool, "CREATE ROLE latin LOGIN; ALTER ROLE latin SET client_encoding = 'LATIN1'; GRANT CREATE ON SCHEMA public TO latin")
	latin, table := as(t, server, "latin"), pglock.Table("schlösser")
	for holder, second := range map[driver.Driver]driver.Driver{
		newDriver(t, latin, table): newDriver(t, pool, table),
		newSession(t, latin):       newSession(t, pool),
	} {
		l := acquire(t, holder, request("schlüssel", "a"))
		mustBeHeld(t, second, "schlüssel", "with another encoding")
		release(t, l)
	}
	d := newDriver(t, latin)
	token := acquire(t, d, request("schlüssel", "a")).Grant().Token
	err := pgx.BeginFunc(t.Context(), latin, func(tx pgx.Tx) error {
		return d.IsOwner(t.Context(), tx, "schlüssel", token)
	})
	if err != nil {
		t.Errorf("IsOwner in a transaction with another encoding = %v", err)
	}
}

// createdByMany starts many programs at once on an empty database.
func createdByMany(t *testing.T, server *pgtest.Server, _ *pgxpool.Pool) {
	var wg sync.WaitGroup
	for i := range 10 {
		d := newDriver(t, dial(t, server.URL()), pglock.Table("many"))
		wg.Go(func() {
			if _, err := d.Acquire(t.Context(), request(fmt.Sprint(i), "a")); err != nil {
				t.Errorf("Acquire = %v", err)
			}
		})
	}
	wg.Wait()
}

// tokenAheadOfClock has a stored token that is greater than the clock, as after the clock was set
// back.
func tokenAheadOfClock(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newDriver(t, pool)
	release(t, acquire(t, d, request("ahead", "a")))
	must(t, pool, "UPDATE snib_locks SET token = token + 3600000000 WHERE name = 'ahead'")
	last := query[int64](t, pool, "SELECT token FROM snib_locks WHERE name = 'ahead'")
	expect := func(what string, token uint64) {
		t.Helper()
		if last++; int64(token) != last {
			t.Errorf("%s = %d, want %d: one more than the stored one", what, token, last)
		}
	}
	for _, kind := range []driver.Request{{}, {Shared: true}, {Slots: 2}} {
		req := request("ahead", "b")
		req.Shared, req.Slots = kind.Shared, kind.Slots
		first := acquire(t, d, req)
		expect("Token", first.Grant().Token)
		if req.Shared || req.Slots > 0 { // another holder beside it is allowed
			req.ID = "c"
			second := acquire(t, d, req)
			expect("Token beside another holder", second.Grant().Token)
			release(t, second)
		}
		release(t, first)
		token, err := d.Token(t.Context(), "ahead")
		if expect("Token of the driver", token); err != nil {
			t.Error(err)
		}
	}
}

// wantedBeforeListening has the other process wait before the holder's connection for
// notifications is ready.
func wantedBeforeListening(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	proxy.Delay(0, 300*time.Millisecond)
	direct, err := pgx.ParseConfig(pgtest.URL(proxy.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	d1, d2 := newDriver(t, pool, pglock.Listen(direct)), newDriver(t, dial(t, server.URL()))
	req := request("soon", "a")
	req.Tokens = 10
	req, wanted := livetest.WithWanted(req)
	l := acquire(t, d1, req)
	w := livetest.Waiting(t, d2, request("soon", "b"))
	select {
	case <-wanted:
	case <-time.After(livetest.Patience):
		t.Errorf("OnWanted was not called within %v after another process began to wait", livetest.Patience)
	}
	release(t, l)
	release(t, w.Get(t))
}

// unusableDatabases tries databases and tables that can't be used.
func unusableDatabases(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	must(t, pool, `CREATE TABLE foreign_locks (id int); CREATE VIEW view_locks AS SELECT 1 AS one`)
	must(t, pool, `CREATE ROLE weak LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	must(t, pool, `CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
	newer, err := pglock.Schema("newer_locks")
	if err != nil {
		t.Fatal(err)
	}
	must(t, pool, newer)
	must(t, pool, `UPDATE newer_locks SET slots = 2 WHERE name = ''`)
	asWeak := func(c *pgxpool.Config) { c.ConnConfig.User = "weak" }
	same := func(*pgxpool.Config) {}
	for _, tt := range []struct {
		name    string
		change  func(*pgxpool.Config)
		table   string
		invalid bool
		want    string
	}{
		{"Foreign", same, "foreign_locks", true, "not one of ours"},
		{"View", same, "view_locks", true, "not one of ours"},
		{"Newer", same, "newer_locks", true, "version 2"},
		{"MayNotCreate", asWeak, "absent_locks", false, "CREATE TABLE IF NOT EXISTS \"absent_locks\""},
		{"MayNotUse", asWeak, "many", false, "GRANT SELECT, INSERT, UPDATE, DELETE ON \"many\""},
		{"NoSchema", same, "nowhere.locks", false, "nowhere"},
		{"ReadOnly", settings("default_transaction_read_only", "on"), "many", false, "accepts no writes"},
		{"Encoding", func(c *pgxpool.Config) { c.ConnConfig.Database = "latin" }, "latin_locks", true, "UTF8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDriver(t, dialWith(t, server.URL(), tt.change), pglock.Table(tt.table))
			_, err := d.Acquire(t.Context(), noWait("a", "b"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, driver.ErrInvalid) != tt.invalid {
				t.Errorf("Acquire = %v, want an error (ErrInvalid: %v) that says %q", err, tt.invalid, tt.want)
			}
		})
	}
}

func TestOptionsRefused(t *testing.T) {
	pool := dial(t, pgtest.URL("127.0.0.1:1")) // nobody listens there
	for _, tt := range []struct {
		name    string
		pool    *pgxpool.Pool
		session bool
		opt     pglock.Option
		says    string
	}{
		{"NoPool", nil, false, pglock.Table("a"), "pool: it is nil"},
		{"TableName", pool, false, pglock.Table("a.b.c"), "more than one dot"},
		{"NoTableName", pool, false, pglock.Table("a."), "at most 63 bytes"},
		{"NoListener", pool, false, pglock.Listen(nil), "nil"},
		{"NoKeys", pool, true, pglock.Keys(nil), "nil"},
		{"ShortTimeout", pool, true, pglock.Timeout(time.Millisecond), "100 ms"},
		{"ZeroOption", pool, false, pglock.Option{}, "the zero Option"},
		{"TimeoutOfRows", pool, false, pglock.Timeout(time.Second), "Timeout: only NewSession"},
		{"KeysOfRows", pool, false, pglock.Keys(pglock.NameKey), "Keys: only NewSession"},
		{"TableOfSession", pool, true, pglock.Table("a"), "Table: only New"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := pglock.New(tt.pool, tt.opt)
			if tt.session {
				_, err = pglock.NewSession(tt.pool, tt.opt)
			}
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("= %v, want ErrInvalid that says %q", err, tt.says)
			}
		})
	}
}

// A stall is a client that stalls in each transaction, before its statements or only at the end.
type stall struct {
	atCommit bool
	fn       func()
}

func (s stall) TraceQueryStart(ctx context.Context, conn *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if conn.PgConn().TxStatus() == 'T' && (!s.atCommit || q.SQL == "commit") {
		s.fn()
	}
	return ctx
}

func (stall) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// stalledInTransaction stalls the driver in its transactions: for longer than the user's limit, and
// then for good, with the row of a lock. The server gives that to others in a few seconds.
func stalledInTransaction(t *testing.T, server *pgtest.Server, pool *pgxpool.Pool) {
	proxy := livetest.NewProxy(t, server.Addr())
	open := func(addr, limit string, s stall) *pglock.Driver {
		return newDriver(t, dialWith(t, pgtest.URL(addr), func(c *pgxpool.Config) {
			settings("default_transaction_isolation", "serializable", "idle_in_transaction_session_timeout", limit)(c)
			c.ConnConfig.Tracer = s
		}))
	}
	d := open(server.Addr(), "20ms", stall{fn: func() { time.Sleep(100 * time.Millisecond) }})
	gone := make(chan bool)
	vanishes := open(proxy.Addr(), "0", stall{true, sync.OnceFunc(func() { proxy.Stall(); close(gone) })})
	const refuse = `CREATE FUNCTION refuse() RETURNS trigger AS 'BEGIN
		IF current_setting(''transaction_isolation'') = ''serializable'' THEN
			RAISE EXCEPTION ''could not serialize'' USING ERRCODE = ''40001''; END IF; RETURN NEW; END' LANGUAGE plpgsql`
	release(t, acquire(t, newDriver(t, pool), request("stalled", "a"))) // makes the table
	must(t, pool, refuse)
	must(t, pool, "CREATE TRIGGER refuse BEFORE UPDATE ON snib_locks FOR EACH ROW EXECUTE FUNCTION refuse()")
	defer must(t, pool, "DROP TRIGGER refuse ON snib_locks")
	release(t, acquire(t, d, request("stalled", "b")))
	livetest.Acquiring(t, vanishes, request("stalled", "c"))
	<-gone
	release(t, acquire(t, newDriver(t, pool), request("stalled", "d")))
}

// diskError has the server report that its disk fails, as it does when fsync fails.
func diskError(t *testing.T, _ *pgtest.Server, pool *pgxpool.Pool) {
	d := newDriver(t, pool, pglock.Table("on_bad_disk"))
	release(t, acquire(t, d, request("a", "a")))
	must(t, pool, `CREATE FUNCTION fail() RETURNS trigger AS
		'BEGIN RAISE EXCEPTION ''could not fdatasync file'' USING ERRCODE = ''58030''; END' LANGUAGE plpgsql`)
	must(t, pool, "CREATE TRIGGER fail BEFORE UPDATE ON on_bad_disk FOR EACH ROW EXECUTE FUNCTION fail()")
	if _, err := d.Acquire(t.Context(), noWait("a", "b")); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire = %v, want ErrUnavailable", err)
	}
}

// TestPolling has no way to listen: there are only connections through a pooler in transaction
// mode.
func TestPolling(t *testing.T) {
	server := pgtest.Start(t)
	pooler := pgtest.Pool(t, server, "transaction")
	count := &counter{}
	d1 := newDriver(t, dial(t, pooler.URL()))
	d2 := newDriver(t, dialWith(t, pooler.URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = count }))
	l := acquire(t, d1, request("polled", "a"))
	w := livetest.Waiting(t, d2, request("polled", "b"))
	if rate := count.rate(2 * time.Second); rate > 10+1.5 {
		t.Errorf("a waiter sent %.1f statements a second, want about 10 at most", rate)
	}
	release(t, l)
	release(t, w.Get(t))
}

func TestClockBack(t *testing.T) {
	t.Parallel()
	clock := livetest.NewShim(t, "postgres")
	server := pgtest.Start(livetest.WithEnv(t, clock.Env()...))
	rowstest.ClockBack(t, rowstest.ClockTest{
		Clock: clock,
		Open:  func(t *testing.T) rowstest.Driver { return newDriver(t, dial(t, server.URL())) },
		Hold: func(t *testing.T, req driver.Request) *livetest.Child {
			return hold(t, server.URL(), false, req)
		},
	})
}

// lockRow has a transaction lock a row, as IsOwner does.
func lockRow(t *testing.T, pool *pgxpool.Pool, table, name string) (unlock func()) {
	t.Helper()
	tx := begin(t, pool, "")
	if locked, err := tx.Exec(t.Context(), "SELECT FROM "+table+" WHERE name = $1 FOR SHARE", name); err != nil ||
		locked.RowsAffected() != 1 {
		t.Fatalf("lock the row of %q: %v, %v", name, locked, err)
	}
	return func() { tx.Rollback(context.Background()) }
}

func TestLockedRow(t *testing.T) {
	t.Parallel()
	server := database(t)
	pool := dialWith(t, server.URL(), func(c *pgxpool.Config) { c.MaxConns = 16 })
	open := func() rowstest.Driver { return newDriver(t, dial(t, server.URL())) }
	lock := func(name string) func() { return lockRow(t, pool, "snib_locks", name) }
	t.Run("Rows", func(t *testing.T) { rowstest.LockedRow(t, open, lock) })
	waits := func() bool { return blocked(t, pool) > 0 }
	t.Run("Renew", func(t *testing.T) { rowstest.RenewBesideLockedRows(t, open(), lock, waits) })
	t.Run("RenewMany", func(t *testing.T) {
		count := &counter{}
		d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = count }))
		var due []driver.Lease
		for i := range 5 {
			due = append(due, acquire(t, d, request(fmt.Sprint("many ", i), "a")))
			defer lock(fmt.Sprint("many ", i))()
		}
		before := count.n.Load()
		d.Renew(t.Context(), due)
		if sent := count.n.Load() - before; sent > 15 { // the listener may begin meanwhile
			t.Errorf("Renew has sent %d statements, and waited for one locked row after another", sent)
		}
	})
}
