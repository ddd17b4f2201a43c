package guarded

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

// A database is a database on which the SQL guards are tested.
type database struct {
	name    string
	dialect fence.Dialect
	open    func(testing.TB) *sql.DB
	concat  string // concatenates the column history and one argument
}

var databases = []database{
	{"Postgres", fence.Postgres, func(t testing.TB) *sql.DB { return open(t, "pgx", pgtest.Start(t).URL()) }, "history || $1"},
	{"PostgresRepeatable", fence.Postgres, func(t testing.TB) *sql.DB {
		return open(t, "pgx", pgtest.Start(t, "default_transaction_isolation=repeatable read").URL())
	}, "history || $1"},
	{"MariaDB", fence.MySQL, func(t testing.TB) *sql.DB { return open(t, "mysql", mysqltest.Start(t).DSN()) }, "CONCAT(history, ?)"},
	{"MariaDBFoundRows", fence.MySQL, func(t testing.TB) *sql.DB {
		return open(t, "mysql", mysqltest.Start(t).DSN("clientFoundRows=true"))
	}, "CONCAT(history, ?)"},
	{"SQLite", fence.SQLite, func(t testing.TB) *sql.DB {
		return open(t, "sqlite3", "file:"+filepath.Join(t.TempDir(), "db")+"?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)&_txlock=immediate")
	}, "history || ?"},
}

func open(t testing.TB, client, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(client, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(32)
	for _, text := range []string{
		"CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL, history text NOT NULL)",
		"INSERT INTO account VALUES (42, 100, ''), (43, 100, '')",
	} {
		exec(t, db, text)
	}
	return db
}

func exec(t testing.TB, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// A hold is a hold as a guard sees it.
type hold struct {
	name  string
	token uint64
	owner string
}

func (h hold) Name() string  { return h.name }
func (h hold) Token() uint64 { return h.token }
func (h hold) ID() string    { return h.owner }

func mark(t testing.TB, token uint64, owner string) fence.Mark {
	t.Helper()
	m, err := fence.Of(hold{"account/42", token, owner})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// balance reads the balance of account 42.
func balance(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 42").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSQL(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			ctx, db := t.Context(), d.open(t)
			g := fence.SQL{DB: db, Dialect: d.dialect}
			for range 2 {
				if err := g.Create(ctx); err != nil {
					t.Fatal(err)
				}
			}
			set := func(h *fence.SQLHandle, n int) error {
				return h.Tx(ctx, nil, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE account SET balance = %d WHERE id = 42", n))
					return err
				})
			}
			claim := func(token uint64, owner string) *fence.SQLHandle {
				t.Helper()
				h, err := g.Open(ctx, hold{"account/42", token, owner})
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			old := claim(7, "old")
			for range 2 { // the same hold may write again
				if err := set(old, 1); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := g.Open(ctx, hold{"account/42", 7, "another"}); !errors.Is(err, fence.ErrConflict) {
				t.Errorf("Open with the same token = %v, want ErrConflict", err)
			}
			later := claim(8, "later")
			var refused *fence.RefusedError
			if err := set(old, 2); !errors.Is(err, fence.ErrStale) || !errors.As(err, &refused) || refused.Last != later.Mark() {
				t.Errorf("Tx of an old hold = %v, want ErrStale with the last mark", err)
			}
			if _, err := g.Open(ctx, hold{"account/42", 7, "old"}); !errors.Is(err, fence.ErrStale) {
				t.Errorf("Open of an old hold = %v, want ErrStale", err)
			}
			if got := balance(t, db); got != 1 {
				t.Errorf("balance = %d, want 1: the stale write is not to be seen", got)
			}
			wrong := errors.New("wrong")
			err := later.Tx(ctx, nil, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = 3 WHERE id = 42"); err != nil {
					return err
				}
				return wrong
			})
			if !errors.Is(err, wrong) || balance(t, db) != 1 {
				t.Errorf("Tx that fails = %v, and the balance is %d", err, balance(t, db))
			}
			err = later.Do(ctx, func(ctx context.Context) error {
				tx, ok := fence.FromTx(ctx)
				if !ok {
					t.Fatal("there is no transaction in the context")
				}
				_, err := tx.ExecContext(ctx, "UPDATE account SET balance = 2 WHERE id = 42")
				return err
			})
			if err != nil || balance(t, db) != 2 {
				t.Errorf("Do = %v, and the balance is %d, want 2", err, balance(t, db))
			}
			// Lock names are case-sensitive and are not interpreted as SQL.
			for _, name := range []string{"Account/42", "account/42 ", `'; DROP TABLE account; --`, strings.Repeat("ä", 256)} {
				if _, err = g.Open(ctx, hold{name, 1, "o"}); err != nil {
					t.Errorf("Open under %q: %v", name, err)
				}
			}
		})
	}
}

func TestColumns(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			ctx, db := t.Context(), d.open(t)
			c := addColumns(t, d, db)
			old, later := mark(t, 7, "old"), mark(t, 8, "later")
			set := func(m fence.Mark, key, n int) error {
				return c.Update(ctx, db, m, key, map[string]any{"balance": n, "history": "x"})
			}
			for range 2 { // the second update changes nothing, and MySQL does not count it
				if err := set(old, 42, 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Claim(ctx, db, mark(t, 7, "another"), 42); !errors.Is(err, fence.ErrConflict) {
				t.Errorf("Claim with the same token = %v, want ErrConflict", err)
			}
			if err := c.Claim(ctx, db, later, 42); err != nil {
				t.Fatal(err)
			}
			var refused *fence.RefusedError
			if err := set(old, 42, 2); !errors.Is(err, fence.ErrStale) || !errors.As(err, &refused) || refused.Last != later {
				t.Errorf("Update of an old hold = %v, want ErrStale with the last mark", err)
			}
			if got := balance(t, db); got != 1 {
				t.Errorf("balance = %d, want 1: the stale write is not to be seen", got)
			}
			if err := set(later, 42, 2); err != nil || balance(t, db) != 2 {
				t.Errorf("Update = %v, and the balance is %d, want 2", err, balance(t, db))
			}
			if err := set(old, 43, 5); err != nil {
				t.Errorf("Update of another row, with a mark of its own: %v", err)
			}
			if err := set(later, 44, 1); !errors.Is(err, fence.ErrNoRow) || errors.Is(err, fence.ErrStale) {
				t.Errorf("Update of a row that is not there = %v, want ErrNoRow", err)
			}
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if err = c.Update(ctx, tx, old, 42, map[string]any{"balance": 9}); !errors.Is(err, fence.ErrStale) {
				t.Errorf("Update in a transaction, of an old hold = %v, want ErrStale", err)
			}
		})
	}
}

// addColumns adds the guard's columns to the table.
func addColumns(t testing.TB, d database, db *sql.DB) fence.Columns {
	t.Helper()
	c := fence.Columns{Dialect: d.dialect, Table: "account", Key: "id"}
	texts, err := c.Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		exec(t, db, text)
	}
	return c
}

// TestNoTable checks that without the guard's table, the error is the database's
// own and matches no error of snib.
func TestNoTable(t *testing.T) {
	db := databases[0].open(t)
	_, err := fence.SQL{DB: db, Dialect: fence.Postgres}.Open(t.Context(), hold{"a", 1, "o"})
	if err == nil || errors.Is(err, fence.ErrStale) || errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), "snib_fence") {
		t.Errorf("Open without the table = %v, want the database's error", err)
	}
}
