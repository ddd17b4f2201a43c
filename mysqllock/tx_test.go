package mysqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/rowstest"
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

func TestTransactions(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	// Tx and Row are independent of these.
	db := dial(t, server.DSN("innodb_lock_wait_timeout=0", "sql_mode='TRADITIONAL'"))
	release(t, acquire(t, newDriver(t, server.DSN()), request("makes the table", "a")))
	rowstest.Transactions{
		DB:    db,
		Limit: time.Second,
		Waiters: "SELECT variable_value FROM information_schema.global_status WHERE variable_name = " +
			"'INNODB_ROW_LOCK_CURRENT_WAITS'",
		Connection: "SELECT CONNECTION_ID()",
		Kill:       "KILL %d",
		Begin: func(t testing.TB) *rowstest.Transaction {
			tx, job := rowstest.SQLTransaction(t, db)
			job.Lock = func(ctx context.Context, name string, wait time.Duration) error {
				return mysqllock.Tx(ctx, tx, name, wait)
			}
			job.Row = func(ctx context.Context, id int, wait time.Duration) (status string, err error) {
				err = mysqllock.Row(ctx, tx, wait, "SELECT status FROM orders WHERE id = ?", id).Scan(&status)
				return status, err
			}
			return job
		},
	}.Run(t)
}

func TestTx(t *testing.T) {
	t.Parallel()
	server := database(t)
	db, d := dial(t, server.DSN()), newDriver(t, server.DSN())
	release(t, acquire(t, d, request("makes the table", "a")))
	must(t, db, "CREATE TABLE jobs (id INT PRIMARY KEY, status VARCHAR(20))")
	must(t, db, "INSERT INTO jobs VALUES (1, 'new')")
	lock := func(t *testing.T, tx *sql.Tx, name string) {
		t.Helper()
		if err := mysqllock.Tx(testContext(t), tx, name, -1); err != nil {
			t.Fatal(err)
		}
	}

	slack := livetest.Slack(t)
	t.Run("WaitLimit", func(t *testing.T) {
		tx1, tx2 := begin(t, db), begin(t, db)
		lock(t, tx1, "limit")
		began := time.Now()
		err := mysqllock.Tx(testContext(t), tx2, "limit", 700*time.Millisecond)
		if took := time.Since(began); !errors.Is(err, driver.ErrHeld) || took < 700*time.Millisecond ||
			took > 4*time.Second+slack() {
			t.Errorf("Tx with a limit = %v after %v, want ErrHeld after a second", err, took)
		}
		var limit int
		if err := tx2.QueryRow("SELECT @@innodb_lock_wait_timeout").Scan(&limit); err != nil || limit != 50 {
			t.Errorf("the limit of the session is %d afterwards (%v), want 50 as before", limit, err)
		}
	})
	t.Run("BlocksNoBatch", func(t *testing.T) { // of all other rows of the table
		var due []driver.Lease
		for i := range 100 {
			due = append(due, acquire(t, d, request(fmt.Sprint("batch", i), "a")))
		}
		before := begin(t, db)
		lock(t, before, "other")
		if err := before.Commit(); err != nil {
			t.Fatal(err)
		}
		must(t, db, "UPDATE snib_locks SET used = 0 WHERE name LIKE X'007425'") // so that Prune would delete it
		lock(t, begin(t, db), "other")
		for i, answer := range d.Renew(testContext(t), due) {
			if answer.Err != nil {
				t.Fatalf("Renew of lease %d = %v", i, answer.Err)
			}
		}
		must(t, db, "UPDATE snib_locks SET used = 0, ends = 1 WHERE name LIKE 'batch%'")
		for range 2 {
			if err := d.Prune(testContext(t), time.Hour); err != nil {
				t.Fatalf("Prune = %v", err)
			}
		}
	})
	t.Run("WaitsAndSeesWhatWasWritten", func(t *testing.T) {
		tx1, tx2 := begin(t, db), begin(t, db)
		lock(t, tx1, "seen")
		got := make(chan error, 1)
		go func() { got <- mysqllock.Tx(testContext(t), tx2, "seen", -1) }()
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
	})
	t.Run("Token", func(t *testing.T) {
		tx := begin(t, db)
		lock(t, tx, "token")
		first, err := d.Token(testContext(t), "token")
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		tx = begin(t, db)
		lock(t, tx, "token")
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

// TestTxOfReplica has a server set read_only, as one that is no primary any more. Its user may
// write all the same, and its rows exclude nobody on the primary.
func TestTxOfReplica(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	db, d := dial(t, server.DSN()), newDriver(t, server.DSN())
	token := acquire(t, d, request("x", "a")).Grant().Token
	must(t, db, "SET GLOBAL read_only = 1")
	tx := begin(t, db)
	for what, err := range map[string]error{
		"Tx":                                    mysqllock.Tx(testContext(t), tx, "x", 0),
		"Row":                                   mysqllock.Row(testContext(t), tx, 0, "SELECT 1 FROM snib_locks WHERE name = 'x'").Scan(new(int)),
		"IsOwner":                               d.IsOwner(testContext(t), tx, "x", token),
		"IsOwner of a name that has no row yet": d.IsOwner(testContext(t), tx, "y", token),
	} {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s = %v, want ErrUnavailable", what, err)
		}
	}
}

func TestTxRefusesRollbackOnTimeout(t *testing.T) {
	server := mysqltest.Start(t, "innodb-rollback-on-timeout=ON")
	db := dial(t, server.DSN())
	if err := mysqllock.Tx(testContext(t), begin(t, db), "x", 0); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("Tx = %v, want ErrInvalid", err)
	}
}
