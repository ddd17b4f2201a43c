package pglock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/rowstest"
	"github.com/sniblock/snib/pglock"
)

// TestTransactions checks exclusion with both kinds of transactions. Package guarded does so with
// lib/pq.
func TestTransactions(t *testing.T) {
	t.Parallel()
	pool := dial(t, database(t).URL())
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	for name, begin := range map[string]func(testing.TB) *rowstest.Transaction{
		"Pgx": func(t testing.TB) *rowstest.Transaction { return pgxTransaction(t, begin(t, pool, "")) },
		"SQL": func(t testing.TB) *rowstest.Transaction {
			tx, job := rowstest.SQLTransaction(t, db)
			job.Lock, job.Row = functions(pglock.SQLTx(tx))
			return job
		},
	} {
		t.Run(name, func(t *testing.T) {
			rowstest.Transactions{
				DB:         db,
				Begin:      begin,
				Limit:      50 * time.Millisecond,
				Waiters:    "SELECT count(*) FROM pg_locks WHERE NOT granted",
				Connection: "SELECT pg_backend_pid()",
				Kill:       "SELECT pg_terminate_backend(%d)",
			}.Run(t)
		})
	}
}

func pgxTransaction(t testing.TB, tx pgx.Tx) *rowstest.Transaction {
	job := &rowstest.Transaction{
		Exec: func(statement string) error {
			_, err := tx.Exec(t.Context(), statement)
			return err
		},
		Number: func(query string) (n int, err error) {
			return n, tx.QueryRow(t.Context(), query).Scan(&n)
		},
		Commit:   func() error { return tx.Commit(t.Context()) },
		Rollback: func() error { return tx.Rollback(t.Context()) },
	}
	job.Lock, job.Row = functions(tx)
	return job
}

// functions returns the functions of rowstest.Transaction that are under test.
func functions(tx pglock.Transaction) (
	lock func(context.Context, string, time.Duration) error,
	row func(context.Context, int, time.Duration) (string, error),
) {
	lock = func(ctx context.Context, name string, wait time.Duration) error {
		return pglock.Tx(ctx, tx, name, wait)
	}
	row = func(ctx context.Context, id int, wait time.Duration) (status string, err error) {
		err = pglock.Row(ctx, tx, wait, byID, id).Scan(&status)
		return status, err
	}
	return lock, row
}

// byID reads the status of an order.
const byID = "SELECT status FROM orders WHERE id = $1"

// TestTx checks what only PostgreSQL does.
func TestTx(t *testing.T) {
	t.Parallel()
	pool := dial(t, database(t).URL())
	must(t, pool, "CREATE TABLE orders (id int PRIMARY KEY, status text); INSERT INTO orders VALUES (1, 'new')")
	for _, tt := range []struct {
		name string
		run  func(*testing.T, *pgxpool.Pool)
	}{
		{"ExcludesSessions", txExcludesSessions},
		{"TokenSurvivesRollback", txTokenSurvivesRollback},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, pool) })
	}
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { db.Close() })
	for name, begin := range map[string]beginFunc{
		"Pgx": func(t *testing.T, level sql.IsolationLevel) (pglock.Transaction, func()) {
			tx := begin(t, pool, map[sql.IsolationLevel]pgx.TxIsoLevel{
				sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
			}[level])
			return tx, func() { tx.Rollback(t.Context()) }
		},
		"SQL": func(t *testing.T, level sql.IsolationLevel) (pglock.Transaction, func()) {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { tx.Rollback() })
			return pglock.SQLTx(tx), func() { tx.Rollback() }
		},
	} {
		for _, tt := range []struct {
			name string
			run  func(*testing.T, beginFunc)
		}{
			{"Isolation", txIsolation},
			{"OwnTimeout", txOwnTimeout},
			{"StatementTimeout", txStatementTimeout},
			{"Aborted", txAborted},
			{"Repeated", txRepeated},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) { tt.run(t, begin) })
		}
	}
}

// A beginFunc begins a transaction that is rolled back at the end of the test.
type beginFunc func(*testing.T, sql.IsolationLevel) (tx pglock.Transaction, rollback func())

// begin begins a transaction that is rolled back at the end of the test.
func begin(t testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// usable checks that a transaction is usable, and has the given lock_timeout.
func usable(t *testing.T, tx pglock.Transaction, want string) {
	t.Helper()
	var limit string
	if err := tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&limit); err != nil || limit != want {
		t.Errorf("lock_timeout afterwards = %q, %v, want %s", limit, err, want)
	}
}

// sqlState returns the server's code of an error, as the errors of all clients have it.
func sqlState(err error) string {
	var refused interface{ SQLState() string }
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.SQLState()
}

// txIsolation: what a transaction reads of its snapshot may be older than the lock.
func txIsolation(t *testing.T, begin beginFunc) {
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
		for _, wait := range []time.Duration{0, time.Second} {
			tx, _ := begin(t, level)
			if err := pglock.Tx(t.Context(), tx, "level", wait); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("Tx in %v with a limit of %v = %v, want ErrInvalid", level, wait, err)
			}
		}
	}
}

// txOwnTimeout checks that the caller's lock_timeout does not replace the limit of a call, and is
// there again afterwards.
func txOwnTimeout(t *testing.T, begin beginFunc) {
	one, rollback := begin(t, sql.LevelDefault)
	two, _ := begin(t, sql.LevelDefault)
	if err := pglock.Tx(t.Context(), one, "own", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Exec(t.Context(), "SET LOCAL lock_timeout = '7ms'"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := pglock.Tx(t.Context(), two, "own", 100*time.Millisecond)
	if took := time.Since(began); !errors.Is(err, driver.ErrHeld) || took < 90*time.Millisecond {
		t.Errorf("Tx with a limit of 100 ms = %v after %v, want ErrHeld after that", err, took)
	}
	usable(t, two, "7ms")
	got := make(chan error, 1)
	go func() { got <- pglock.Tx(t.Context(), two, "own", -1) }()
	select {
	case err := <-got:
		t.Fatalf("Tx without a limit = %v, want it to wait", err)
	case <-time.After(100 * time.Millisecond): // the caller's lock_timeout is over
	}
	rollback()
	if err := <-got; err != nil {
		t.Errorf("Tx after the rollback of the holder = %v", err)
	}
	usable(t, two, "7ms")
	if err := pglock.Tx(t.Context(), two, "own", 1000*time.Hour); err != nil {
		t.Errorf("Tx with a limit that is longer than the greatest lock_timeout = %v", err)
	}
}

// txStatementTimeout checks that the caller's statement_timeout is the server's error, after which
// the transaction can be used.
func txStatementTimeout(t *testing.T, begin beginFunc) {
	one, _ := begin(t, sql.LevelDefault)
	two, _ := begin(t, sql.LevelDefault)
	if err := pglock.Tx(t.Context(), one, "slow", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Exec(t.Context(), "SET LOCAL statement_timeout = '200ms'"); err != nil {
		t.Fatal(err)
	}
	const queryCanceled = "57014"
	if err := pglock.Tx(t.Context(), two, "slow", -1); sqlState(err) != queryCanceled || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Tx = %v, want error %s and not ErrHeld", err, queryCanceled)
	}
	usable(t, two, "0")
}

// txAborted checks that a transaction in which a statement has failed gets no lock.
func txAborted(t *testing.T, begin beginFunc) {
	tx, _ := begin(t, sql.LevelDefault)
	if _, err := tx.Exec(t.Context(), "SELECT 1/0"); err == nil {
		t.Fatal("SELECT 1/0 = nil")
	}
	var status string
	const inFailedTransaction = "25P02"
	for call, err := range map[string]error{
		"Tx":         pglock.Tx(t.Context(), tx, "aborted", -1),
		"Tx at once": pglock.Tx(t.Context(), tx, "aborted", 0),
		"Row":        pglock.Row(t.Context(), tx, 0, byID, 1).Scan(&status),
	} {
		if sqlState(err) != inFailedTransaction || errors.Is(err, driver.ErrHeld) {
			t.Errorf("%s = %v, want error %s and not ErrHeld", call, err, inFailedTransaction)
		}
	}
}

// txRepeated checks that a transaction that has to be repeated, because others have changed the
// row since it began, gets the row then.
func txRepeated(t *testing.T, begin beginFunc) {
	change, _ := begin(t, sql.LevelDefault)
	try := func(first bool) (status string, err error) {
		tx, rollback := begin(t, sql.LevelSerializable)
		defer rollback()
		if err := tx.QueryRow(t.Context(), "SELECT 'the snapshot begins'").Scan(&status); err != nil {
			t.Fatal(err)
		}
		if first {
			if _, err := change.Exec(t.Context(), "UPDATE orders SET status = status || '+'"); err != nil {
				t.Fatal(err)
			}
			if err := change.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		err = pglock.Row(t.Context(), tx, 0, byID, 1).Scan(&status)
		return status, err
	}
	const serializationFailure = "40001"
	if _, err := try(true); sqlState(err) != serializationFailure {
		t.Errorf("Row of a row that was changed since the transaction began = %v, want error %s", err, serializationFailure)
	}
	if status, err := try(false); err != nil || status[len(status)-1] != '+' {
		t.Errorf("Row when the transaction is repeated = %q, %v, want the new status", status, err)
	}
}

func txExcludesSessions(t *testing.T, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	tx := begin(t, pool, "")
	if err := pglock.Tx(t.Context(), tx, "both", -1); err != nil {
		t.Fatalf("Tx = %v", err)
	}
	mustBeHeld(t, d, "both", "in a session while a transaction holds")
	tx.Rollback(t.Context())
	l := acquire(t, d, request("both", "a"))
	if err := pglock.Tx(t.Context(), begin(t, pool, ""), "both", 0); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Tx while a session holds = %v, want ErrHeld", err)
	}
	release(t, l)
}

func txTokenSurvivesRollback(t *testing.T, pool *pgxpool.Pool) {
	d := newDriver(t, pool)
	release(t, acquire(t, d, request("token", "a")))
	// The token is ahead of the clock.
	must(t, pool, "UPDATE snib_locks SET token = token + 3600000000 WHERE name = 'token'")
	var last uint64
	for i := range 3 {
		tx := begin(t, pool, "")
		if err := pglock.Tx(t.Context(), tx, "token", -1); err != nil {
			t.Fatalf("Tx = %v", err)
		}
		got, err := d.Token(t.Context(), "token")
		if err != nil || got <= last {
			t.Errorf("Token of holder %d = %d, %v, want more than %d", i, got, err, last)
		}
		last = got
		tx.Rollback(t.Context())
	}
	if got := acquire(t, d, request("token", "b")).Grant().Token; got <= last {
		t.Errorf("Token of a lease = %d, want more than %d", got, last)
	}
}
