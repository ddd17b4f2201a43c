package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/sqlitelock"
)

// A sqlStore keeps the account in its own table, beside that of the guard.
type sqlStore struct {
	db    *sql.DB
	guard fence.SQL
	locks snib.Driver
	close func() // closes what locks uses
}

// openSQLite opens two files in a folder: one for the account, and one for the locks.
func openSQLite(ctx context.Context, folder string) (store, error) {
	locks, err := sqlitelock.Open(ctx, filepath.Join(folder, "locks.db"))
	if err != nil {
		return nil, err
	}
	file := "file:" + filepath.Join(folder, "account.db") +
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate"
	return openSQL(ctx, "sqlite3", file, fence.SQLite, locks, func() {})
}

// openPostgres opens a store with the account and the locks in one database.
func openPostgres(ctx context.Context, url string) (store, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, err
	}
	locks, err := pglock.New(pool, pglock.Table("paused_client_locks"))
	if err != nil {
		pool.Close()
		return nil, err
	}
	return openSQL(ctx, "pgx", url, fence.Postgres, locks, pool.Close)
}

func openSQL(ctx context.Context, client, dsn string, dialect fence.Dialect, locks snib.Driver,
	closeLocks func()) (store, error) {
	db, err := sql.Open(client, dsn)
	if err != nil {
		err = errors.Join(err, locks.Close())
		closeLocks()
		return nil, err
	}
	s := &sqlStore{db: db, locks: locks, close: closeLocks,
		guard: fence.SQL{DB: db, Dialect: dialect, Table: "paused_client_fence"}}
	for _, create := range []func(context.Context) error{s.guard.Create, s.create} {
		if err = create(ctx); err != nil {
			return nil, errors.Join(err, locks.Close(), s.Close())
		}
	}
	return s, nil
}

func (s *sqlStore) Locks() snib.Driver { return s.locks }

// create creates the account unless it exists.
func (s *sqlStore) create(ctx context.Context) error {
	for _, text := range []string{
		"CREATE TABLE IF NOT EXISTS paused_client_account (id integer PRIMARY KEY, balance integer NOT NULL)",
		"INSERT INTO paused_client_account VALUES (42, 0) ON CONFLICT (id) DO NOTHING",
	} {
		if _, err := s.db.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqlStore) Read(ctx context.Context) (balance int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT balance FROM paused_client_account WHERE id = 42").Scan(&balance)
	return balance, err
}

func (s *sqlStore) Write(ctx context.Context, balance int) error { return set(ctx, s.db, balance) }

// set writes the balance, in a transaction or without one.
func set(ctx context.Context, q fence.Querier, balance int) error {
	_, err := q.ExecContext(ctx, "UPDATE paused_client_account SET balance = $1 WHERE id = 42", balance)
	return err
}

func (s *sqlStore) Open(ctx context.Context, g guard, lock *snib.Lock) (writer, error) {
	if g == noGuard {
		return s.Write, nil
	}
	mark, err := fence.Of(lock)
	if g == claimed && err == nil {
		_, err = s.guard.Open(ctx, lock)
	}
	return func(ctx context.Context, balance int) error {
		return s.guard.Tx(ctx, nil, mark, func(tx *sql.Tx) error { return set(ctx, tx, balance) })
	}, err
}

func (s *sqlStore) Close() error {
	s.close()
	return s.db.Close()
}
