package rowstest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// Transactions is a database whose locks last as long as a transaction, with the client under test.
type Transactions struct {
	DB    *sql.DB                       // what the tests themselves use
	Begin func(testing.TB) *Transaction // rolled back at the end of the test, whatever happened
	Limit time.Duration                 // the shortest limit of a wait

	Waiters    string // a query: how many transactions wait for a lock
	Connection string // a query: the number of the transaction's connection
	Kill       string // a statement that ends the connection with the number %d
}

// A Transaction is a transaction, with the functions under test. A wait without limit is negative.
type Transaction struct {
	Lock     func(ctx context.Context, name string, wait time.Duration) error
	Row      func(ctx context.Context, id int, wait time.Duration) (status string, err error) // of table orders
	Exec     func(statement string) error
	Number   func(query string) (int, error)
	Commit   func() error
	Rollback func() error
}

// SQLTransaction returns a transaction of database/sql. Lock and Row are missing.
func SQLTransaction(t testing.TB, db *sql.DB) (*sql.Tx, *Transaction) {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	livetest.Must(t, err, "begin a transaction")
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx, &Transaction{
		Exec: func(statement string) error {
			_, err := tx.ExecContext(t.Context(), statement)
			return err
		},
		Number: func(query string) (n int, err error) {
			return n, tx.QueryRowContext(t.Context(), query).Scan(&n)
		},
		Commit:   tx.Commit,
		Rollback: tx.Rollback,
	}
}

// A takeFunc takes the lock that a test is about.
type takeFunc func(ctx context.Context, tx *Transaction, wait time.Duration) error

// Run checks locks by name and locks of rows.
func (db Transactions) Run(t *testing.T) {
	db.exec(t, "CREATE TABLE IF NOT EXISTS orders (id INT PRIMARY KEY, status VARCHAR(20))")
	for _, kind := range []struct {
		name string
		take takeFunc
	}{
		{"Lock", func(ctx context.Context, tx *Transaction, wait time.Duration) error {
			return tx.Lock(ctx, "report", wait)
		}},
		{"Row", func(ctx context.Context, tx *Transaction, wait time.Duration) error {
			_, err := tx.Row(ctx, 1, wait)
			return err
		}},
	} {
		for _, tt := range []struct {
			name string
			run  func(t *testing.T, db Transactions, take takeFunc)
		}{
			{"Commit", func(t *testing.T, db Transactions, take takeFunc) {
				excludes(t, db, take, func(tx *Transaction) error { return tx.Commit() })
			}},
			{"Rollback", func(t *testing.T, db Transactions, take takeFunc) {
				excludes(t, db, take, func(tx *Transaction) error { return tx.Rollback() })
			}},
			{"HolderDies", func(t *testing.T, db Transactions, take takeFunc) {
				excludes(t, db, take, func(tx *Transaction) error { db.kill(t, db.connection(t, tx)); return nil })
			}},
			{"WaiterDies", waiterDies},
			{"ContextEnds", contextEnds},
		} {
			t.Run(kind.name+"/"+tt.name, func(t *testing.T) {
				db.exec(t, "DELETE FROM orders")
				db.exec(t, "INSERT INTO orders VALUES (1, 'new'), (2, 'new')")
				tt.run(t, db, kind.take)
			})
		}
	}
	t.Run("Reentrant", func(t *testing.T) { lockTwice(t, db) })
	t.Run("RowChanged", func(t *testing.T) {
		db.changed(t, "UPDATE orders SET status = 'paid' WHERE id = 2", "paid", nil)
	})
	t.Run("RowSame", func(t *testing.T) {
		db.changed(t, "UPDATE orders SET status = 'new' WHERE id = 2", "new", nil)
	})
	t.Run("RowGone", func(t *testing.T) { db.changed(t, "DELETE FROM orders WHERE id = 2", "", sql.ErrNoRows) })
}

// excludes checks that two transactions exclude each other until the first one has ended, and what
// becomes of limits.
func excludes(t *testing.T, db Transactions, take takeFunc, end func(*Transaction) error) {
	one, two := db.Begin(t), db.Begin(t)
	livetest.Must(t, take(t.Context(), one, 0), "take what nobody holds")
	livetest.Must(t, two.Exec("UPDATE orders SET status = 'mine' WHERE id = 2"), "write a row")
	for _, wait := range []time.Duration{0, db.Limit} {
		began := time.Now()
		err := take(t.Context(), two, wait)
		if took := time.Since(began); !errors.Is(err, driver.ErrHeld) || took < wait-wait/10 {
			t.Errorf("with a wait of %v = %v after %v, want ErrHeld after that", wait, err, took)
		}
	}
	got := db.wait(t, func() error { return take(t.Context(), two, -1) })
	livetest.Must(t, end(one), "end of the holder")
	livetest.Must(t, <-got, "take what nobody holds")
	livetest.Want(t, take(t.Context(), db.Begin(t), 0), driver.ErrHeld, "after the second has got it")
	livetest.Must(t, two.Commit(), "Commit")
	livetest.Must(t, take(t.Context(), db.Begin(t), 0), "take what nobody holds")
	if n := db.number(t, "SELECT count(*) FROM orders WHERE status = 'mine'"); n != 1 {
		t.Error("what a transaction has written before an ErrHeld is gone")
	}
}

// waiterDies checks that a transaction that loses its connection while it waits does not get the
// lock.
func waiterDies(t *testing.T, db Transactions, take takeFunc) {
	one, two := db.Begin(t), db.Begin(t)
	livetest.Must(t, take(t.Context(), one, 0), "take what nobody holds")
	id := db.connection(t, two)
	got := db.wait(t, func() error { return take(t.Context(), two, -1) })
	db.kill(t, id)
	if err := <-got; err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("when the connection is lost = %v, want another error than ErrHeld", err)
	}
	livetest.Want(t, take(t.Context(), db.Begin(t), 0), driver.ErrHeld, "while the holder goes on")
}

// contextEnds checks that a wait ends with its context, and leaves nothing in the server.
func contextEnds(t *testing.T, db Transactions, take takeFunc) {
	one, two := db.Begin(t), db.Begin(t)
	livetest.Must(t, take(t.Context(), one, 0), "take what nobody holds")
	ctx, cancel := context.WithCancel(t.Context())
	got := db.wait(t, func() error { return take(ctx, two, -1) })
	cancel()
	livetest.Want(t, <-got, context.Canceled, "when the context ends")
	livetest.Must(t, one.Commit(), "Commit")
	livetest.Must(t, take(t.Context(), db.Begin(t), -1), "take what nobody holds")
}

// lockTwice takes a lock twice in a transaction, beside one with another name. Both names are new.
func lockTwice(t *testing.T, db Transactions) {
	one, two := db.Begin(t), db.Begin(t)
	livetest.Must(t, one.Lock(t.Context(), "new", 0), "take what nobody holds")
	livetest.Must(t, one.Lock(t.Context(), "new", 0), "take what nobody holds")
	livetest.Must(t, two.Lock(t.Context(), "New", 0), "take what nobody holds")
	livetest.Want(t, two.Lock(t.Context(), "", 0), driver.ErrInvalid, "without a name")
}

// changed checks what Row returns if the row is changed during the wait.
func (db Transactions) changed(t *testing.T, change, want string, wantErr error) {
	db.exec(t, "DELETE FROM orders")
	db.exec(t, "INSERT INTO orders VALUES (2, 'new')")
	one, two := db.Begin(t), db.Begin(t)
	if _, err := two.Number("SELECT count(*) FROM orders"); err != nil { // which may begin a snapshot
		t.Fatal(err)
	}
	livetest.Must(t, one.Exec(change), "change a row")
	var status string
	got := db.wait(t, func() (err error) { status, err = two.Row(t.Context(), 2, time.Minute); return err })
	livetest.Must(t, one.Commit(), "Commit")
	if err := <-got; !errors.Is(err, wantErr) || status != want {
		t.Errorf("Row after %s = %q, %v, want %q, %v", change, status, err, want, wantErr)
	}
	livetest.Want(t, two.Commit(), nil, "Commit")
}

// wait runs fn in a goroutine, and returns when a transaction waits in the server. The channel has
// fn's result.
func (db Transactions) wait(t testing.TB, fn func() error) <-chan error {
	t.Helper()
	got := make(chan error, 1)
	go func() { got <- fn() }()
	livetest.Await(t, "waiter", func() error {
		if db.number(t, db.Waiters) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	return got
}

// connection returns the number of a transaction's connection.
func (db Transactions) connection(t testing.TB, tx *Transaction) int {
	t.Helper()
	id, err := tx.Number(db.Connection)
	livetest.Must(t, err, "number of the connection")
	return id
}

func (db Transactions) kill(t testing.TB, connection int) {
	t.Helper()
	db.exec(t, fmt.Sprintf(db.Kill, connection))
}

func (db Transactions) exec(t testing.TB, statement string) {
	t.Helper()
	if _, err := db.DB.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (db Transactions) number(t testing.TB, query string) (n int) {
	t.Helper()
	livetest.Must(t, db.DB.QueryRowContext(t.Context(), query).Scan(&n), "%s", query)
	return n
}
