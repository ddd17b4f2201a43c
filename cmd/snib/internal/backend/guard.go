package backend

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ncruces/go-sqlite3"
	sqlite "github.com/ncruces/go-sqlite3/driver"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
)

// guardTable is the table of marks. It is not that of guards which programs use beside their data.
const guardTable = "snib_marks"

// guardConns bounds the connections of a guard to its server, and so of each replica.
const guardConns = 8

// A Guard lets holds in to resources, and keeps their marks in the database of a store, as durably
// as its locks. It creates its table when it is first needed. Its errors match
// [driver.ErrUnavailable] unless it refuses the hold, or its user may not use the table.
type Guard struct{ fence.SQL }

// Guard returns the guard of the store, which does not connect before it is used; nil if the store
// is no database.
func (s *Store) Guard() (*Guard, error) {
	if s.openMarks == nil {
		return nil, nil
	}
	db, dialect, err := s.openMarks()
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(guardConns)
	return &Guard{fence.SQL{DB: db, Dialect: dialect, Table: guardTable}}, nil
}

// Close closes the connections of the guard.
func (g *Guard) Close() error { return g.DB.Close() }

// Do implements [fence.Guard].
func (g *Guard) Do(ctx context.Context, m fence.Mark, fn func(context.Context) error) error {
	err := g.SQL.Do(ctx, m, fn)
	if isNoTable(err) {
		// Another process may create the table at the same time, which makes one of both fail.
		created := g.Create(ctx)
		if err = g.SQL.Do(ctx, m, fn); isNoTable(err) {
			err = errors.Join(created, err)
		}
	}
	_, refused := errors.AsType[*fence.RefusedError](err)
	switch {
	case err == nil, refused, isForbidden(err):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err) // a driver may report something else
	}
	// A disk that is full, or a server that only reads, is mended sooner or later.
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// isNoTable reports whether a statement failed because its table does not exist.
func isNoTable(err error) bool {
	return isPostgresError(err, "42P01") || isMySQLError(err, 1146) ||
		errors.Is(err, sqlite3.ERROR) && strings.Contains(err.Error(), "no such table")
}

// isForbidden reports whether the user of a database may not use a table, or create one.
func isForbidden(err error) bool {
	return isPostgresError(err, "42501") || isMySQLError(err, 1044, 1142, 1143)
}

// openSQLiteMarks opens a SQLite file for marks, which the driver of the locks has made.
func openSQLiteMarks(file string) (*sql.DB, fence.Dialect, error) {
	// A file that is gone is not created again: it would have no marks, and no locks.
	uri := url.URL{Scheme: "file", Path: path.Join("/", filepath.ToSlash(file)), RawQuery: "mode=rw&_txlock=immediate"}
	db, err := sqlite.Open(uri.String(), func(c *sqlite3.Conn) error {
		// As in sqlitelock, the write-ahead log stays when the last connection is closed.
		if _, err := c.FileControl("main", sqlite3.FCNTL_PERSIST_WAL, true); err != nil {
			return err
		}
		return c.Exec("PRAGMA synchronous = FULL")
	})
	return db, fence.SQLite, err
}

// memoryIdentity is that of a store in the memory of this process.
var memoryIdentity = sync.OnceValue(rand.Text)

// Identity returns what tells the store from all others: for a database, the owner of a mark in it,
// which the first service makes up. Its token is greater than any that a client may send, so it
// does not change. The identity is "" for a store that keeps no marks.
func (s *Store) Identity(ctx context.Context) (string, error) {
	if s.Private() {
		return memoryIdentity(), nil
	}
	g, err := s.Guard()
	if g == nil || err != nil {
		return "", err
	}
	m := fence.Mark{Lock: "snib-store", Token: math.MaxInt64, Owner: driver.Digest(rand.Text())}
	err = g.Do(ctx, m, nil)
	if refused, ok := errors.AsType[*fence.RefusedError](err); ok {
		m, err = refused.Last, nil
	}
	return m.Owner, errors.Join(err, g.Close())
}
