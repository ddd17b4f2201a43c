package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// A conn is one connection to the database. It is all that this package needs of a build of
// SQLite, so that the build can be replaced. It is not safe for concurrent use. All SQL texts
// are constants; an implementation may cache compiled statements.
type conn interface {
	// exec runs one statement and returns how many rows the last INSERT, UPDATE or
	// DELETE changed.
	exec(sql string, args ...any) (int64, error)

	// query runs one statement and calls each for every row of its result.
	query(sql string, each func(row), args ...any) error

	close() error
}

// A row is a row of a result. It is valid only during the call that it was passed to.
type row interface {
	int(col int) int64
	text(col int) string
}

// Result codes of SQLite, which are the same in every build.
const (
	codeError    = 1 // in the text of a statement: a table is missing
	codeBusy     = 5
	codeReadOnly = 8
	codeIO       = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// resultCode returns SQLite's primary result code, or 0 if err is not an SQLite error.
func resultCode(err error) int {
	var code sqlite3.ErrorCode
	if errors.As(err, &code) {
		return int(code)
	}
	return 0
}

// A wasmConn is a conn of github.com/ncruces/go-sqlite3. It is the build of SQLite for Go whose
// file locks belong to the open file and not to the process. The others lose their locks as
// soon as anything in the process opens and closes one of the database's files.
type wasmConn struct {
	db    *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

// mostLogged is after how many pages in the log a commit moves them into the database, 25 to 30
// cycles of a lock. The first process that opens the database reads the whole log.
const mostLogged = 100

// connect opens a database, whose file must exist. While the database is busy,
// calls wait until closing returns true.
func connect(path string, closing func() bool) (conn, error) {
	db, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE)
	if err != nil {
		return nil, err
	}
	c := &wasmConn{db: db, stmts: make(map[string]*sqlite3.Stmt)}
	if err := firstError(
		func() error {
			return db.BusyHandler(func(_ context.Context, count int) bool { return backOff(count) && !closing() })
		},
		// The write-ahead log stays when the last connection is closed, with all that is in it. So
		// short-lived processes neither remove nor create files, which is slow, and which lets
		// processes that start and stop at the same time interfere with each other; nor do they
		// write the database, and wait for the disk, when they end.
		func() error { _, err := db.FileControl("main", sqlite3.FCNTL_PERSIST_WAL, true); return err },
		func() error { _, err := db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); return err },
		func() error { return db.WALAutoCheckpoint(mostLogged) },
	); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return c, nil
}

// backOff sleeps between two tries while another connection keeps the database busy. It sleeps
// longer the greater count is. It returns true.
func backOff(count int) bool {
	most := min(50*time.Microsecond<<min(count, 10), 10*time.Millisecond)
	time.Sleep(most/2 + rand.N(most/2))
	return true
}

func (c *wasmConn) exec(sql string, args ...any) (int64, error) {
	s, err := c.prepare(sql, args)
	if err != nil {
		return 0, err
	}
	if err := s.Exec(); err != nil {
		return 0, err
	}
	return c.db.Changes(), nil
}

func (c *wasmConn) query(sql string, each func(row), args ...any) error {
	s, err := c.prepare(sql, args)
	if err != nil {
		return err
	}
	for s.Step() {
		each(wasmRow{s})
	}
	return s.Reset() // it returns the error of the last step
}

// prepare returns the compiled statement with its parameters set.
func (c *wasmConn) prepare(sql string, args []any) (*sqlite3.Stmt, error) {
	s := c.stmts[sql]
	if s == nil {
		var err error
		if s, _, err = c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT); err != nil {
			return nil, err
		}
		c.stmts[sql] = s
	}
	for i, arg := range args {
		if err := bind(s, i+1, arg); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func bind(s *sqlite3.Stmt, param int, arg any) error {
	switch v := arg.(type) {
	case int64:
		return s.BindInt64(param, v)
	case int:
		return s.BindInt(param, v)
	case bool:
		return s.BindBool(param, v)
	case string:
		return s.BindText(param, v)
	default:
		return fmt.Errorf("can't bind a %T", arg)
	}
}

func (c *wasmConn) close() error {
	for _, s := range c.stmts {
		s.Close() //nolint:errcheck // it repeats the error of the last run, which was returned then
	}
	return c.db.Close()
}

type wasmRow struct{ *sqlite3.Stmt }

func (r wasmRow) int(col int) int64   { return r.ColumnInt64(col) }
func (r wasmRow) text(col int) string { return r.ColumnText(col) }
