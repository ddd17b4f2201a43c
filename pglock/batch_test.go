package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// TestBatchBesideLockedRows keeps the rows of some locks locked while requests for these and for
// other locks go to the server together. All others are served meanwhile, and those for the locked
// rows afterwards.
func TestBatchBesideLockedRows(t *testing.T) {
	t.Parallel()
	modes := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			server := database(t)
			admin := dial(t, server.URL())
			d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
				c.MaxConns = 8
				c.ConnConfig.DefaultQueryExecMode = mode
			}))
			const others = 10
			names := func(kind string) (all []string) { // the last one is not sent alone
				all = []string{kind + " locked 1", kind + " locked 2", kind + " locked 3"}
				for i := range others {
					all = append(all, fmt.Sprint(kind, " ", i))
				}
				return all
			}
			for _, name := range names("take")[:3+others/2] { // the rest have no row
				release(t, acquire(t, d, request(name, "first")))
			}
			besideLockedRows(t, admin, names("take"), func(name string) error {
				l, err := d.Acquire(t.Context(), request(name, "second"))
				if err == nil && l.Grant().Token == 0 {
					err = errors.New("a lease without a token")
				}
				return err
			})
			taken := map[string]driver.Lease{}
			for _, name := range names("free") {
				taken[name] = acquire(t, d, request(name, "first"))
			}
			besideLockedRows(t, admin, names("free"), func(name string) error { return taken[name].Release(t.Context()) })
			for _, name := range names("free") {
				acquire(t, d, noWait(name, "second"))
			}
		})
	}
}

// besideLockedRows calls fn for each name in a goroutine of its own, while the rows of the first
// three are locked.
func besideLockedRows(t *testing.T, admin *pgxpool.Pool, names []string, fn func(name string) error) {
	t.Helper()
	done := make(map[string]chan error)
	start := func(some ...string) {
		for _, name := range some {
			done[name] = make(chan error, 1)
			go func(result chan<- error) {
				err := fn(name)
				for errors.Is(err, driver.ErrUnavailable) { // its row is locked, or the machine is busy
					err = fn(name)
				}
				result <- err
			}(done[name])
		}
	}
	await := func(some ...string) {
		t.Helper()
		for _, name := range some {
			select {
			case err := <-done[name]:
				if err != nil {
					t.Errorf("the request for %q = %v", name, err)
				}
			case <-time.After(livetest.Patience):
				t.Fatalf("the request for %q had no answer within %v", name, livetest.Patience)
			}
		}
	}
	var unlocks []func()
	for _, name := range names[:3] {
		unlocks = append(unlocks, lockRow(t, admin, "snib_locks", name))
	}
	start(names[:2]...)
	awaitBlocked(t, admin, 2)
	start(names[2:]...)
	await(names[3:]...)
	for _, name := range names[:3] {
		select {
		case err := <-done[name]:
			t.Errorf("the request for %q, whose row is locked, = %v", name, err)
		default:
		}
	}
	for _, unlock := range unlocks {
		unlock()
	}
	await(names[:3]...)
}

// gather makes the requests to the driver wait for one another, so that they go to the server in
// batches: two requests wait for their rows. It returns a function that ends this.
func gather(t *testing.T, d driver.Driver, admin *pgxpool.Pool) (end func()) {
	t.Helper()
	var waiting []*livetest.Waiter
	var unlocks []func()
	for _, name := range []string{"locked 1", "locked 2"} {
		release(t, acquire(t, d, request(name, "a")))
		unlocks = append(unlocks, lockRow(t, admin, "snib_locks", name))
		waiting = append(waiting, livetest.Acquiring(t, persistent{d}, request(name, "b")))
	}
	awaitBlocked(t, admin, 2)
	return func() {
		for i, unlock := range unlocks {
			unlock()
			waiting[i].Get(t)
		}
	}
}

// blocked returns how many statements of the pool's database wait for a row. Other tests may use
// other databases of the same server.
func blocked(t *testing.T, pool *pgxpool.Pool) int {
	return query[int](t, pool,
		"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
}

// awaitBlocked waits until some statements wait for rows.
func awaitBlocked(t *testing.T, pool *pgxpool.Pool, want int) {
	t.Helper()
	livetest.Await(t, "statements that wait for rows", func() error {
		if n := blocked(t, pool); n != want {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
}

// TestRolledBackAnswer lets the commit of a statement fail after its answer has arrived. Before
// the driver repeats the statement, another driver takes the locks. So the grants of the first
// try, which was rolled back, must not count. The requests go alone first, and then in a batch.
func TestRolledBackAnswer(t *testing.T) {
	t.Parallel()
	server := database(t)
	admin := dial(t, server.URL())
	onFailure := &failureHook{}
	d := newDriver(t, dialWith(t, server.URL(), func(c *pgxpool.Config) {
		c.MaxConns = 8
		c.ConnConfig.Tracer = onFailure
	}))
	other := newDriver(t, admin)
	const n = 10
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprint("name ", i)
		release(t, acquire(t, other, request(names[i], "first")))
	}
	must(t, admin, `CREATE TABLE fail ();
		CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF EXISTS (SELECT FROM fail) AND NEW.holders->0->>'id' LIKE 'second%' THEN RAISE SQLSTATE '40001'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON snib_locks DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fail_once()`)

	takeWhileOtherTakes := func(names ...string) {
		t.Helper()
		must(t, admin, "INSERT INTO fail DEFAULT VALUES")
		leases := make([]driver.Lease, len(names)) // of other
		onFailure.set(func() {
			for i, name := range names {
				leases[i] = acquire(t, other, request(name, "other"))
			}
			must(t, admin, "DELETE FROM fail") // until here all batches fail, if there are several
		})
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				_, err := persistent{d}.Acquire(t.Context(), noWait(name, "second"))
				if !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Acquire of %q, which the other driver holds, = %v", name, err)
				}
			})
		}
		all.Wait()
		for _, l := range leases {
			if l == nil {
				t.Fatal("no statement has failed")
			}
			release(t, l)
		}
	}
	takeWhileOtherTakes(names[0])
	endGathering := gather(t, d, admin)
	takeWhileOtherTakes(names...)
	endGathering()

	// A renewal must not count either if it was rolled back: here the repeated statement skips the
	// row, which is locked by then.
	must(t, admin, "INSERT INTO fail DEFAULT VALUES")
	must(t, admin, "ALTER TABLE snib_locks DISABLE TRIGGER fail")
	l := acquire(t, d, request(names[0], "second"))
	broken := acquire(t, d, request(names[1], "second"))
	must(t, admin, "ALTER TABLE snib_locks ENABLE TRIGGER fail")
	var unlock func()
	onFailure.set(func() {
		must(t, admin, "DELETE FROM fail")
		unlock = lockRow(t, admin, "snib_locks", names[0])
	})
	renewed := make(chan error, 1)
	go func() {
		var err error = driver.ErrUnavailable
		for errors.Is(err, driver.ErrUnavailable) { // it waits for a second
			err = d.Renew(t.Context(), []driver.Lease{l})[0].Err
		}
		renewed <- err
	}()
	awaitBlocked(t, admin, 1)
	unlock()
	if err := <-renewed; err != nil {
		t.Errorf("Renew = %v", err)
	}

	// Nor does what SetHolder has found.
	must(t, admin, "INSERT INTO fail DEFAULT VALUES")
	onFailure.set(func() {
		must(t, admin, "DELETE FROM fail")
		if err := other.Break(t.Context(), names[1], broken.ID()); err != nil {
			t.Errorf("Break = %v", err)
		}
	})
	if err := broken.SetHolder(t.Context(), driver.Holder{}); !errors.Is(err, driver.ErrLost) {
		t.Errorf("SetHolder of a lease that was broken = %v, want ErrLost", err)
	}
}

// A failureHook calls a function when a statement can't be serialized for the first time.
type failureHook struct {
	mu sync.Mutex
	fn func()
}

func (h *failureHook) set(fn func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fn = fn
}

func (h *failureHook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (h *failureHook) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sqlState(data.Err) == "40001" && h.fn != nil {
		h.fn()
		h.fn = nil
	}
}
