package mysqllock_test

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// batchTest returns the test of a driver's batches.
func batchTest(t *testing.T, d driver.Driver, admin *sql.DB) jobtest.BatchTest {
	return jobtest.BatchTest{
		Driver:  d,
		LockRow: func(name string) func() { return lockRow(t, admin, name) },
		Blocked: func() int {
			return int(status(t, admin, "INNODB_ROW_LOCK_CURRENT_WAITS"))
		},
	}
}

func TestBatchBesideLockedRows(t *testing.T) {
	t.Parallel()
	for _, params := range [][]string{nil, {"autocommit=0", "interpolateParams=true"}} {
		t.Run(fmt.Sprint(params), func(t *testing.T) {
			server := mysqltest.Start(t)
			batchTest(t, newDriver(t, dial(t, server.DSN(params...))), dial(t, server.DSN())).Run(t)
		})
	}
}

// TestBatchOfMalformedRows: rows with which the server can't compute fail only their own requests.
func TestBatchOfMalformedRows(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	update := func(set string) func(name string) {
		return func(name string) { must(t, admin, "UPDATE snib_locks SET "+set+" WHERE name = ?", name) }
	}
	spoil, repair := update("version = 9223372036854775807"), update("version = 1")
	batchTest(t, newDriver(t, admin), admin).RunMalformed(t, spoil, repair, spoil)
}

// TestCrashAfterBatch kills the server as soon as it has answered a batch.
func TestCrashAfterBatch(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	d := newDriver(t, dial(t, server.DSN()))
	makeRows(t, d, 20)
	end := batchTest(t, d, admin).Gather(t)
	for i, r := range acquireAll(t.Context(), d, 20, func(int) string { return "second" }) {
		if r.err != nil {
			t.Errorf("Acquire of %q = %v", nth(i), r.err)
		}
	}
	mustHaveBatches(t, admin)
	server.Kill()
	server.Restart()
	for i := range 20 {
		mustBeHeld(t, d, request(nth(i), "other"))
	}
	end()
}

// TestBatchAnswers has a batch of requests for locks that are free, that another driver holds, and
// that two requests want. Each request gets its own answer, with the token of its own row.
func TestBatchAnswers(t *testing.T) {
	t.Parallel()
	const n = 30
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	d, other := newDriver(t, dial(t, server.DSN())), newDriver(t, admin)
	makeRows(t, d, n)
	for i := 0; i < n; i += 3 {
		acquire(t, other, request(nth(i), "other"))
	}
	defer batchTest(t, d, admin).Gather(t)()
	first, second := make([]result, n), make([]result, n)
	var both sync.WaitGroup
	both.Go(func() { first = acquireAll(t.Context(), d, n, func(int) string { return "first" }) })
	both.Go(func() { second = acquireAll(t.Context(), d, n, func(int) string { return "second" }) })
	both.Wait()
	mustHaveBatches(t, admin)
	for i := range n {
		granted := 0
		for _, r := range []result{first[i], second[i]} {
			switch {
			case r.err == nil:
				granted++
				if got, want := int64(r.lease.Grant().Token), number(t, admin, "SELECT held FROM snib_locks WHERE name = ?", nth(i)); got != want {
					t.Errorf("the token of %q = %d; the row has %d", nth(i), got, want)
				}
			case !errors.Is(r.err, driver.ErrHeld):
				t.Errorf("Acquire of %q = %v", nth(i), r.err)
			}
		}
		if want := min(i%3, 1); granted != want {
			t.Errorf("%q was granted %d times, want %d", nth(i), granted, want)
		}
	}
	for i, r := range first { // in a batch, too
		if r.err == nil {
			both.Go(func() {
				if err := r.lease.Release(t.Context()); err != nil {
					t.Errorf("Release of %q = %v", nth(i), err)
				}
				if err := r.lease.Release(t.Context()); err != nil {
					t.Errorf("the second Release of %q = %v", nth(i), err)
				}
			})
		}
	}
	both.Wait()
	for i, r := range second {
		if r.err == nil || i%3 == 0 {
			mustBeHeld(t, other, request(nth(i), "nobody"))
		} else if _, err := tryAcquire(t, other, request(nth(i), "next")); err != nil {
			t.Errorf("Acquire of %q after its release = %v", nth(i), err)
		}
	}
}

// TestBatchAnswerLost loses the answer to a batch that the server has executed. Each request finds
// its grant by its owner, and each release of such a batch says that it does not know.
func TestBatchAnswerLost(t *testing.T) {
	t.Parallel()
	const n = 20
	server := mysqltest.Start(t)
	admin, proxy := dial(t, server.DSN()), livetest.NewProxy(t, server.Addr())
	d := newDriver(t, dial(t, mysqltest.DSN(proxy.Addr())))
	makeRows(t, d, n)
	end := batchTest(t, d, admin).Gather(t)
	lost := proxy.LoseAnswers(1, livetest.ThenClose, `},{"name"`, `"nonce"`)
	all := acquireAll(t.Context(), d, n, func(int) string { return "owner" })
	<-lost
	for i, r := range all {
		if r.err != nil {
			t.Fatalf("Acquire of %q = %v", nth(i), r.err)
		}
		if err := d.Renew(testContext(t), []driver.Lease{r.lease})[0].Err; err != nil {
			t.Errorf("Renew of %q = %v", nth(i), err)
		}
	}
	end()
	for _, r := range all {
		release(t, r.lease)
	}
	for i := range n {
		release(t, acquire(t, newDriver(t, admin), request(nth(i), "next")))
	}
}

// TestBatchMemberCancelled cancels one request of a batch that the server is executing.
func TestBatchMemberCancelled(t *testing.T) {
	t.Parallel()
	const n = 10
	server := mysqltest.Start(t)
	admin := dial(t, server.DSN())
	d := newDriver(t, dial(t, server.DSN()))
	makeRows(t, d, n)
	open := gate(t, admin, nth(5), "")
	defer batchTest(t, d, admin).Gather(t)()
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() {
		_, err := d.Acquire(ctx, request("name 0", "second"))
		cancelled <- err
	}()
	others := make(chan []result, 1)
	go func() {
		others <- acquireAll(t.Context(), d, n, func(i int) string { return fmt.Sprint("second ", i) })[1:]
	}()
	awaitGate(t, admin)
	cancel()
	if err := <-cancelled; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire = %v, want the cause of its context", err)
	}
	open()
	for i, r := range <-others {
		if r.err != nil {
			t.Errorf("Acquire of %q, in a batch with the one that was cancelled, = %v", nth(i+1), r.err)
		}
	}
}

// TestRolledBackBatch: a batch that the server has answered in part is rolled back. Before the
// driver repeats it, other clients take the locks. So the grants of the first try must not count.
func TestRolledBackBatch(t *testing.T) {
	t.Parallel()
	const n, failing = 20, 10
	server := mysqltest.Start(t)
	admin, db := dial(t, server.DSN()), dial(t, server.DSN())
	db.SetMaxIdleConns(40) // a connection that closed would let the next try fail, too
	d := newDriver(t, db)
	makeRows(t, d, n)
	open := gate(t, admin, nth(failing), "IF IS_FREE_LOCK('failed') AND GET_LOCK('failed', 0) THEN SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END IF;")
	b := batchTest(t, d, admin)
	defer b.Gather(t)()
	all := make(chan []result, 1)
	go func() { all <- acquireAll(t.Context(), d, n, func(int) string { return "second" }) }()
	awaitGate(t, admin)

	// The others wait for the rows of the batch, and so are served first when it is rolled back.
	blocked := int64(b.Blocked())
	var done atomic.Int64
	var taking sync.WaitGroup
	taken := make([]bool, n)
	for i := range n {
		taking.Go(func() {
			defer done.Add(1)
			res, err := admin.Exec(`UPDATE snib_locks SET version = version + 1, token = token + 1, held = token, ends = ends + (1 << 60),
				holder = 'other-1 {"owner":"other"}\n' WHERE name = ? AND held = 0`, nth(i))
			if err != nil {
				t.Error(err)
				return
			}
			rows, err := res.RowsAffected()
			taken[i] = err == nil && rows == 1
		})
	}
	livetest.Await(t, "statements that take the locks", func() error {
		if waiting := int64(b.Blocked()) - blocked; waiting == 0 || waiting+done.Load() != n {
			return fmt.Errorf("%d wait, and %d are done", waiting, done.Load())
		}
		return nil
	})
	open()
	results := <-all
	taking.Wait()
	for i, r := range results {
		if want := map[bool]error{true: driver.ErrHeld}[taken[i]]; !errors.Is(r.err, want) {
			t.Errorf("Acquire of %q = %v, want %v", nth(i), r.err, want)
		}
	}
}

// TestNoBatchesForReplicasThatReplay: where replicas execute the statements again, there are none.
func TestNoBatchesForReplicasThatReplay(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "log-bin", "binlog-format=STATEMENT")
	admin := dial(t, server.DSN())
	d := newDriver(t, dial(t, server.DSN()))
	makeRows(t, d, 40)
	before := batches(t, admin)
	for i, r := range acquireAll(t.Context(), d, 40, func(int) string { return "second" }) {
		if r.err != nil {
			t.Errorf("Acquire of %q = %v", nth(i), r.err)
		}
	}
	if n := batches(t, admin) - before; n != 0 {
		t.Errorf("the driver has sent %d batches", n)
	}
}

func nth(i int) string { return fmt.Sprint("name ", i) }

// makeRows creates the rows of n locks.
func makeRows(t *testing.T, d driver.Driver, n int) {
	for i := range n {
		release(t, acquire(t, d, request(nth(i), "first")))
	}
}

// A result is that of Acquire.
type result struct {
	lease driver.Lease
	err   error
}

// acquireAll acquires n locks at once, without waiting.
func acquireAll(ctx context.Context, d driver.Driver, n int, owner func(i int) string) []result {
	results := make([]result, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			req := request(nth(i), owner(i))
			req.NoWait = true
			results[i].lease, results[i].err = d.Acquire(ctx, req)
		})
	}
	all.Wait()
	return results
}

// batches returns how many batches the server has executed. A batch is an INSERT ... SELECT, as is
// the creation of a row.
func batches(t *testing.T, admin *sql.DB) int64 {
	return status(t, admin, "COM_INSERT_SELECT")
}

// status returns one of the server's counters.
func status(t *testing.T, admin *sql.DB, name string) int64 {
	t.Helper()
	return number(t, admin, "SELECT variable_value FROM information_schema.global_status WHERE variable_name = ?", name)
}

// mustHaveBatches checks that the server has executed a batch: more than it has created rows.
func mustHaveBatches(t *testing.T, admin *sql.DB) {
	t.Helper()
	if rows := number(t, admin, "SELECT COUNT(*) FROM snib_locks WHERE name <> ''"); batches(t, admin) <= rows {
		t.Fatal("no batch was sent")
	}
}

// gate lets the server stop in each batch when it writes the row of a name, until open is called.
// Then it runs a statement.
func gate(t *testing.T, admin *sql.DB, name, then string) (open func()) {
	t.Helper()
	conn, err := admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "DO GET_LOCK('gate', 0)"); err != nil {
		t.Fatal(err)
	}
	must(t, admin, `CREATE TRIGGER gate AFTER UPDATE ON snib_locks FOR EACH ROW BEGIN
		IF NEW.name = FROM_BASE64('`+base64.StdEncoding.EncodeToString([]byte(name))+`') AND NEW.holder LIKE '%"second%' THEN
			DO GET_LOCK('gate', 20), RELEASE_LOCK('gate');
			`+then+`
		END IF;
	END`)
	return func() {
		if _, err := conn.ExecContext(t.Context(), "DO RELEASE_LOCK('gate')"); err != nil {
			t.Errorf("open the gate: %v", err)
		}
	}
}

// awaitGate waits until a statement waits at the gate.
func awaitGate(t *testing.T, admin *sql.DB) {
	t.Helper()
	livetest.Await(t, "batch at the gate", func() error {
		if number(t, admin, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'") == 0 {
			return errors.New("nobody is there")
		}
		return nil
	})
}
