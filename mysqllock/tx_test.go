package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/mysqllock"
)

// begin begins a transaction that is rolled back at the end of the test.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestTx(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db := dial(t, server.DSN())
	d := newDriver(t, db)
	release(t, acquire(t, d, request("makes the table", "a")))
	must(t, db, "CREATE TABLE jobs (id INT PRIMARY KEY, status VARCHAR(20))")
	must(t, db, "INSERT INTO jobs VALUES (1, 'new')")
	lock := func(tx *sql.Tx, name string, opts ...mysqllock.TxOption) error {
		return mysqllock.Tx(testContext(t), tx, name, opts...)
	}

	t.Run("Row", func(t *testing.T) { testRow(t, db) })
	t.Run("LastsAsLongAsTheTransaction", func(t *testing.T) {
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			tx1, tx2 := begin(t, db), begin(t, db)
			if err := lock(tx1, "report"); err != nil {
				t.Fatal(err)
			}
			if err := lock(tx1, "report", mysqllock.TxNoWait()); err != nil {
				t.Errorf("Tx again in the same transaction = %v, want nil", err)
			}
			if err := lock(tx2, "report", mysqllock.TxNoWait()); !errors.Is(err, driver.ErrHeld) {
				t.Errorf("Tx with NoWait while another has it = %v, want ErrHeld", err)
			}
			if err := lock(tx2, "Report", mysqllock.TxNoWait()); err != nil {
				t.Errorf("Tx of another name = %v, want nil", err)
			}
			if err := end(tx1); err != nil {
				t.Fatal(err)
			}
			if err := lock(tx2, "report", mysqllock.TxNoWait()); err != nil {
				t.Errorf("Tx after the end of the other = %v, want nil", err)
			}
			if err := tx2.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("WaitLimit", func(t *testing.T) {
		tx1, tx2 := begin(t, db), begin(t, db)
		if err := lock(tx1, "limit"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx2.Exec("UPDATE jobs SET status = 'mine' WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := lock(tx2, "limit", mysqllock.TxWait(700*time.Millisecond))
		if took := time.Since(began); !errors.Is(err, driver.ErrHeld) || took < 700*time.Millisecond || took > 4*time.Second {
			t.Errorf("Tx with a limit = %v after %v, want ErrHeld after a second", err, took)
		}
		var limit int
		if err := tx2.QueryRow("SELECT @@innodb_lock_wait_timeout").Scan(&limit); err != nil || limit != 50 {
			t.Errorf("the limit of the session is %d afterwards (%v), want 50 as before", limit, err)
		}
		if err := tx2.Commit(); err != nil {
			t.Errorf("Commit after ErrHeld = %v", err)
		}
		var status string
		if err := db.QueryRow("SELECT status FROM jobs WHERE id = 1").Scan(&status); err != nil || status != "mine" {
			t.Errorf("the status that the transaction wrote before ErrHeld is %q, %v", status, err)
		}
		must(t, db, "UPDATE jobs SET status = 'new'")
	})
	t.Run("WaitsAndSeesWhatWasWritten", func(t *testing.T) {
		tx1, tx2 := begin(t, db), begin(t, db)
		if err := lock(tx1, "seen"); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { got <- lock(tx2, "seen") }()
		time.Sleep(50 * time.Millisecond) // it waits in the server, unnoticed
		if _, err := tx1.Exec("UPDATE jobs SET status = 'done' WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		if err := tx1.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		var status string // read by an ordinary SELECT in a REPEATABLE READ transaction
		if err := tx2.QueryRow("SELECT status FROM jobs WHERE id = 1").Scan(&status); err != nil || status != "done" {
			t.Errorf("status after the wait = %q, %v; want the status that the previous holder wrote", status, err)
		}
		must(t, db, "UPDATE jobs SET status = 'new'")
	})
	t.Run("ContextEnds", func(t *testing.T) {
		tx1, tx2 := begin(t, db), begin(t, db)
		if err := lock(tx1, "ends"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := mysqllock.Tx(ctx, tx2, "ends"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Tx = %v, want the end of its context", err)
		}
		if err := tx1.Commit(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("NoTable", func(t *testing.T) {
		if err := lock(begin(t, db), "x", mysqllock.TxTable("nowhere")); err == nil {
			t.Error("Tx without a table = nil")
		}
	})
	t.Run("Token", func(t *testing.T) {
		tx := begin(t, db)
		if err := lock(tx, "token"); err != nil {
			t.Fatal(err)
		}
		first, err := d.Token(testContext(t), "token")
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		tx = begin(t, db)
		if err := lock(tx, "token"); err != nil {
			t.Fatal(err)
		}
		second, err := d.Token(testContext(t), "token")
		if err != nil || second <= first {
			t.Errorf("the token after a rollback = %d, %v; want more than %d", second, err, first)
		}
		l := acquire(t, d, request("token", "a"))
		if got := l.Grant().Token; got <= second {
			t.Errorf("the token of a lease = %d, want more than %d", got, second)
		}
		third, err := d.Token(testContext(t), "token")
		if err != nil || third <= l.Grant().Token {
			t.Errorf("the token beside a lease = %d, %v; want more than %d", third, err, l.Grant().Token)
		}
	})
}

func TestTxRefusesRollbackOnTimeout(t *testing.T) {
	server := mysqltest.Start(t, "innodb-rollback-on-timeout=ON")
	db := dial(t, server.DSN())
	if err := mysqllock.Tx(testContext(t), begin(t, db), "x", mysqllock.TxNoWait()); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Tx = %v, want ErrInvalid", err)
	}
}

func testRow(t *testing.T, db *sql.DB) {
	must(t, db, "CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(20))")
	status := func(tx *sql.Tx, wait time.Duration, id int) (status string, err error) {
		err = mysqllock.Row(testContext(t), tx, wait, "SELECT status FROM orders WHERE id = ?", id).Scan(&status)
		return status, err
	}
	tests := []struct {
		name string
		id   int
		do   string // what the holder of the row does
		want string
		err  error
	}{
		{"Changed", 1, "UPDATE orders SET status = 'paid' WHERE id = 1", "paid", nil},
		{"Same", 2, "UPDATE orders SET status = 'new' WHERE id = 2", "new", nil},
		{"Gone", 3, "DELETE FROM orders WHERE id = 3", "", sql.ErrNoRows},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			must(t, db, "INSERT INTO orders VALUES (?, 'new')", tt.id)
			tx1, tx2 := begin(t, db), begin(t, db)
			var before string // reading it begins a snapshot
			if err := tx2.QueryRow("SELECT status FROM orders WHERE id = ?", tt.id).Scan(&before); err != nil || before != "new" {
				t.Fatal(before, err)
			}
			if got, err := status(tx1, 0, tt.id); err != nil || got != "new" {
				t.Fatalf("Row of a row that nobody has = %q, %v", got, err)
			}
			if _, err := tx1.Exec(tt.do); err != nil {
				t.Fatal(err)
			}
			waits := []time.Duration{0}
			if tt.err != nil {
				waits = append(waits, time.Millisecond) // it takes a second: once is enough
			}
			for _, wait := range waits {
				if _, err := status(tx2, wait, tt.id); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Row with a wait of %v, of a row that another has, = %v, want ErrHeld", wait, err)
				}
			}
			time.AfterFunc(100*time.Millisecond, func() { _ = tx1.Commit() })
			if got, err := status(tx2, -1, tt.id); got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("Row after the wait = %q, %v; want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}
