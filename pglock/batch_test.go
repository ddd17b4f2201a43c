package pglock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
)

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
			batchTest(t, d, admin).Run(t)
		})
	}
}

// blocked returns how many statements of the pool's database wait for a row. Other tests may use
// other databases of the same server.
func blocked(t *testing.T, pool *pgxpool.Pool) int {
	return query[int](t, pool,
		"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()")
}

// batchTest returns the test of a driver's batches.
func batchTest(t *testing.T, d driver.Driver, admin *pgxpool.Pool) jobtest.BatchTest {
	return jobtest.BatchTest{
		Driver:  d,
		LockRow: func(name string) func() { return lockRow(t, admin, "snib_locks", name) },
		Blocked: func() int { return blocked(t, admin) },
	}
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
			IF EXISTS (SELECT FROM fail) AND NEW.holders->0->>'id' = 'second' THEN RAISE SQLSTATE '40001'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON snib_locks DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION fail_once()`)

	takeWhileOtherTakes := func(names ...string) {
		t.Helper()
		must(t, admin, "INSERT INTO fail DEFAULT VALUES")
		leases := make([]driver.Lease, len(names)) // of other
		onFailure.set(func() {
			must(t, admin, "DELETE FROM fail")
			for i, name := range names {
				leases[i] = acquire(t, other, request(name, "other"))
			}
		})
		var all sync.WaitGroup
		for _, name := range names {
			all.Go(func() {
				if _, err := d.Acquire(t.Context(), noWait(name, "second")); !errors.Is(err, driver.ErrHeld) {
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
	endGathering := batchTest(t, d, admin).Gather(t)
	takeWhileOtherTakes(names...)
	endGathering()

	// A renewal must not count either if it was rolled back: here the repeated statement skips the
	// row, which is locked by then.
	must(t, admin, "INSERT INTO fail DEFAULT VALUES")
	must(t, admin, "ALTER TABLE snib_locks DISABLE TRIGGER fail")
	l := acquire(t, d, request(names[0], "second"))
	must(t, admin, "ALTER TABLE snib_locks ENABLE TRIGGER fail")
	var unlock func()
	onFailure.set(func() {
		must(t, admin, "DELETE FROM fail")
		unlock = lockRow(t, admin, "snib_locks", names[0])
	})
	renewed := make(chan driver.Renewal, 1)
	go func() { renewed <- d.Renew(t.Context(), []driver.Lease{l})[0] }()
	livetest.Await(t, "renewal that waits for the row", func() error {
		if n := blocked(t, admin); n != 1 {
			return fmt.Errorf("%d statements wait", n)
		}
		return nil
	})
	unlock()
	if r := <-renewed; r.Err != nil {
		t.Errorf("Renew = %v", r.Err)
	}
}

// A failureHook calls a function when a statement fails for the first time.
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
	if data.Err != nil && h.fn != nil {
		h.fn()
		h.fn = nil
	}
}
