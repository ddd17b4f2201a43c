package sqlitelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// Result codes of SQLite.
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

// A conn is one connection to the database, through github.com/ncruces/go-sqlite3: the build of
// SQLite for Go whose file locks belong to the open file and not to the process. The others lose
// their locks as soon as anything in the process opens and closes one of the database's files. A
// conn is not safe for concurrent use. It keeps the compiled form of each text, which is constant.
type conn struct {
	db    *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

// mostLogged is after how many pages in the log a commit moves them into the database, 25 to 30
// cycles of a lock. The first process that opens the database reads the whole log.
const mostLogged = 100

// connect opens a database, whose file must exist. While the database is busy,
// calls wait until closing returns true.
func connect(path string, closing func() bool) (*conn, error) {
	db, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE)
	if err != nil {
		return nil, err
	}
	c := &conn{db: db, stmts: make(map[string]*sqlite3.Stmt)}
	if err := firstError(
		func() error {
			return db.BusyHandler(func(_ context.Context, count int) bool { backOff(count); return !closing() })
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
// longer the greater count is.
func backOff(count int) {
	most := min(50*time.Microsecond<<min(count, 10), 10*time.Millisecond)
	time.Sleep(most/2 + rand.N(most/2))
}

// exec runs one statement.
func (c *conn) exec(sql string, args ...any) error {
	s, err := c.prepare(sql, args)
	if err != nil {
		return err
	}
	return s.Exec()
}

// query runs one statement and calls each for every row of its result.
func (c *conn) query(sql string, each func(row), args ...any) error {
	s, err := c.prepare(sql, args)
	if err != nil {
		return err
	}
	for s.Step() {
		each(row{s})
	}
	return s.Reset() // it returns the error of the last step
}

// prepare returns the compiled statement with its parameters set.
func (c *conn) prepare(sql string, args []any) (*sqlite3.Stmt, error) {
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

func (c *conn) close() error {
	for _, s := range c.stmts {
		s.Close() //nolint:errcheck // it repeats the error of the last run, which was returned then
	}
	return c.db.Close()
}

// A row is a row of a result. It is valid only during the call that it was passed to.
type row struct{ *sqlite3.Stmt }

func (r row) int(col int) int64   { return r.ColumnInt64(col) }
func (r row) text(col int) string { return r.ColumnText(col) }
