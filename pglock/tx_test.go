package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/pglock"
)

func TestTx(t *testing.T) {
	server := pgtest.Start(t)
	pool := dial(t, server.URL())
	must(t, pool, "CREATE TABLE orders (id int PRIMARY KEY, status text); INSERT INTO orders VALUES (1, 'new'), (2, 'new'), (3, 'new')")
	tests := []struct {
		name string
		run  func(*testing.T, *pgxpool.Pool)
	}{
		{"Excludes", txExcludes},
		{"Limits", txLimits},
		{"Isolation", txIsolation},
		{"ExcludesSessions", txExcludesSessions},
		{"TokenSurvivesRollback", txTokenSurvivesRollback},
		{"RowBusy", rowBusy},
		{"RowGone", rowGone},
		{"RowChanged", rowChanged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, pool) })
	}
}

// begin begins a transaction that is rolled back at the end of the test.
func begin(t *testing.T, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	return tx
}

// usable checks that a refusal left the transaction usable, and left no limit in it.
func usable(t *testing.T, tx pgx.Tx) {
	t.Helper()
	var limit string
	if err := tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&limit); err != nil || limit != "0" {
		t.Errorf("lock_timeout afterwards = %q, %v, want 0", limit, err)
	}
}

func txExcludes(t *testing.T, pool *pgxpool.Pool) {
	one, two := begin(t, pool, ""), begin(t, pool, "")
	if err := pglock.Tx(t.Context(), one, "excluded"); err != nil {
		t.Fatalf("Tx = %v", err)
	}
	if err := pglock.Tx(t.Context(), two, "other"); err != nil {
		t.Fatalf("Tx of another name = %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- pglock.Tx(t.Context(), two, "excluded") }()
	select {
	case err := <-got:
		t.Fatalf("Tx of a lock that is held = %v, want it to wait", err)
	case <-time.After(50 * time.Millisecond): // it waits
	}
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("Tx after the commit of the holder = %v", err)
	}
	if err := pglock.Tx(t.Context(), two, ""); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Tx without a name = %v, want ErrInvalid", err)
	}
}

func txLimits(t *testing.T, pool *pgxpool.Pool) {
	one, two := begin(t, pool, ""), begin(t, pool, "")
	if err := pglock.Tx(t.Context(), one, "limited", pglock.TxShared()); err != nil {
		t.Fatalf("Tx = %v", err)
	}
	if err := pglock.Tx(t.Context(), two, "limited", pglock.TxShared(), pglock.TxNoWait()); err != nil {
		t.Errorf("Tx of the read side beside another = %v", err)
	}
	if err := pglock.Tx(t.Context(), two, "limited", pglock.TxNoWait()); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Tx with TxNoWait = %v, want ErrHeld", err)
	}
	began := time.Now()
	err := pglock.Tx(t.Context(), two, "limited", pglock.TxWait(100*time.Millisecond))
	if took := time.Since(began); !errors.Is(err, driver.ErrHeld) || took < 90*time.Millisecond || took > 2*time.Second {
		t.Errorf("Tx with TxWait of 100 ms = %v after %v, want ErrHeld then", err, took)
	}
	usable(t, two)
	if err := one.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pglock.Tx(t.Context(), two, "limited", pglock.TxWait(time.Second)); err != nil {
		t.Errorf("Tx after the rollback of the holder = %v", err)
	}
	usable(t, two)
}

func txIsolation(t *testing.T, pool *pgxpool.Pool) {
	for _, opt := range []pglock.TxOption{pglock.TxNoWait(), pglock.TxWait(time.Second)} {
		if err := pglock.Tx(t.Context(), begin(t, pool, pgx.RepeatableRead), "level", opt); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Tx in REPEATABLE READ = %v, want ErrInvalid", err)
		}
		tx := begin(t, pool, pgx.Serializable)
		if err := pglock.Tx(t.Context(), tx, "level", opt); err != nil {
			t.Errorf("Tx in SERIALIZABLE = %v", err)
		}
		tx.Rollback(t.Context())
	}
}

func txExcludesSessions(t *testing.T, pool *pgxpool.Pool) {
	d := newSession(t, pool)
	tx := begin(t, pool, "")
	if err := pglock.Tx(t.Context(), tx, "both"); err != nil {
		t.Fatalf("Tx = %v", err)
	}
	mustBeHeld(t, d, "both", "in a session while a transaction holds")
	tx.Rollback(t.Context())
	l := acquire(t, d, request("both", "a"))
	if err := pglock.Tx(t.Context(), begin(t, pool, ""), "both", pglock.TxNoWait()); !errors.Is(err, driver.ErrHeld) {
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
		if err := pglock.Tx(t.Context(), tx, "token"); err != nil {
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

const byID = "SELECT status FROM orders WHERE id = $1"

func rowBusy(t *testing.T, pool *pgxpool.Pool) {
	one, two := begin(t, pool, ""), begin(t, pool, "")
	var status string
	if err := pglock.Row(t.Context(), one, 0, byID, 1).Scan(&status); err != nil || status != "new" {
		t.Fatalf("Row = %q, %v, want new", status, err)
	}
	for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
		if err := pglock.Row(t.Context(), two, wait, byID, 1).Scan(&status); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Row of a busy row, waiting for %v, = %v, want ErrHeld", wait, err)
		}
		usable(t, two)
	}
	if err := pglock.Row(t.Context(), two, 0, byID, 2).Scan(&status); err != nil {
		t.Errorf("Row of another = %v", err)
	}
}

func rowGone(t *testing.T, pool *pgxpool.Pool) {
	one, two := begin(t, pool, ""), begin(t, pool, "")
	if _, err := one.Exec(t.Context(), "DELETE FROM orders WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		var status string
		got <- pglock.Row(t.Context(), two, -1, byID, 2).Scan(&status)
	}()
	select {
	case err := <-got:
		t.Fatalf("Row of a busy row = %v, want it to wait", err)
	case <-time.After(50 * time.Millisecond): // it waits
	}
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("Row of a row that was deleted meanwhile = %v, want ErrNoRows", err)
	}
	usable(t, two)
}

func rowChanged(t *testing.T, pool *pgxpool.Pool) {
	one, two := begin(t, pool, ""), begin(t, pool, "")
	if _, err := one.Exec(t.Context(), "UPDATE orders SET status = 'paid' WHERE id = 3"); err != nil {
		t.Fatal(err)
	}
	var status string
	got := make(chan error, 1)
	go func() { got <- pglock.Row(t.Context(), two, time.Minute, byID, 3).Scan(&status) }()
	time.Sleep(20 * time.Millisecond) // Tx mostly waits by then; both orders are correct
	if err := one.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil || status != "paid" {
		t.Errorf("Row of a row that was changed meanwhile = %q, %v, want paid", status, err)
	}
	usable(t, two)
}
