package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/ncruces/go-sqlite3/driver"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/sqlitelock"
)

// A ledger says which work is done. Its row is written in the transaction of the work, so either
// both are there or neither is.
type ledger struct {
	locker *snib.Locker
	guard  fence.SQL
	record string // the statement that adds a row
	lookUp string // the statement that counts the rows of a key
	close  func()
}

// once does the work that key names, unless it is done. It returns true if the work was done by
// this call, also if an error says that the lock was lost or not released after that. It returns
// false without an error if the work was done before, or another host is doing it.
//
// Three things make that so, and each has its own part. The lock lets one host work at a time, so
// that the others need not do the work in vain. The guard refuses a host that was paused for so
// long that another one got the lock. The row of the ledger, whose key can exist only once, says
// that the work is done, for ever. Work outside the database, such as a payment, must take the key
// as its own idempotency key: it is begun again if the commit fails.
func (l *ledger) once(ctx context.Context, key string,
	work func(ctx context.Context, tx *sql.Tx) error) (did bool, err error) {
	err = l.locker.Do(ctx, key, func(ctx context.Context, lock *snib.Lock) error {
		handle, err := l.guard.Open(ctx, lock)
		if err != nil {
			return err
		}
		isDone := false
		err = handle.Tx(ctx, nil, func(tx *sql.Tx) error {
			var rows int
			err := tx.QueryRowContext(ctx, l.lookUp, key).Scan(&rows)
			if isDone = rows > 0; isDone || err != nil {
				return err
			}
			if err = work(ctx, tx); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, l.record, key, time.Now().UTC().Format(time.RFC3339))
			return err
		})
		did = err == nil && !isDone
		return err
	})
	if errors.Is(err, snib.ErrHeld) {
		return false, nil
	}
	return did, err
}

// A store says where the ledger and the locks are.
type store struct{ Kind, URL string }

// open opens the store, and creates its tables.
func (s store) open(ctx context.Context) (*ledger, error) {
	client, dsn := "pgx", s.URL
	l := &ledger{
		guard:  fence.SQL{Dialect: fence.Postgres, Table: "ledger_fence"},
		record: "INSERT INTO ledger (name, done_at) VALUES ($1, $2)",
		lookUp: "SELECT count(*) FROM ledger WHERE name = $1",
	}
	switch s.Kind {
	case "postgres":
	case "sqlite":
		client, l.guard.Dialect = "sqlite3", fence.SQLite
		dsn = "file:" + filepath.Join(s.URL, "data.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate"
	case "mysql":
		client, l.guard.Dialect = "mysql", fence.MySQL
		l.record = "INSERT INTO ledger (name, done_at) VALUES (?, ?)"
		l.lookUp = "SELECT count(*) FROM ledger WHERE name = ?"
	default:
		return nil, fmt.Errorf("store %q: want sqlite, postgres or mysql", s.Kind)
	}
	db, err := sql.Open(client, dsn)
	if err != nil {
		return nil, err
	}
	l.guard.DB = db
	locks, closeLocks, err := s.locks(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	// A host that finds the lock taken leaves the work to its holder.
	l.locker, err = snib.New(locks, snib.Prefix("ledger/"), snib.TTL(10*time.Second), snib.NoWait())
	l.close = func() { _ = errors.Join(l.locker.Close(), closeLocks(), db.Close()) }
	if err == nil {
		err = l.guard.Create(ctx)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS ledger (name varchar(200) PRIMARY KEY, done_at varchar(40) NOT NULL)")
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// locks opens the locks, which are in the same database, or in a file beside that of SQLite.
func (s store) locks(ctx context.Context) (snib.Driver, func() error, error) {
	noClose := func() error { return nil }
	switch s.Kind {
	case "sqlite":
		d, err := sqlitelock.Open(ctx, filepath.Join(s.URL, "locks.db"))
		return d, noClose, err
	case "mysql":
		conf, err := mysql.ParseDSN(s.URL)
		if err != nil {
			return nil, nil, err
		}
		d, err := mysqllock.New(conf)
		return d, noClose, err
	}
	pool, err := pgxpool.New(ctx, s.URL)
	if err != nil {
		return nil, nil, err
	}
	d, err := pglock.New(pool)
	return d, func() error { pool.Close(); return nil }, err
}
