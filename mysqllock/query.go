package mysqllock

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// An execResult is what the server says of a statement that writes. It does not matter whether
// the server counts the rows that were found or those that were changed (clientFoundRows): the
// driver's statements change each row that they find.
type execResult struct {
	rows int64
	id   int64          // the value of LAST_INSERT_ID
	sent driver.Instant // when the statement was sent, the last time

	version int64 // that it gave to rows then

	// repeated means that the statement was sent again after its connection had failed. It may
	// have been executed twice: if it changed no rows, the first execution may have changed them.
	repeated bool
}

type lockLimitKey struct{}

// limitLockWait bounds for how many seconds each statement of a call waits for rows that other
// transactions have locked. After that it fails with lockWaitTimeout, and is not repeated.
func limitLockWait(ctx context.Context, seconds int) context.Context {
	return context.WithValue(ctx, lockLimitKey{}, waitingFor(int64(seconds)))
}

// waitingFor begins a statement that waits for locks for so many seconds.
func waitingFor(seconds int64) string {
	return fmt.Sprintf("SET STATEMENT innodb_lock_wait_timeout = %d FOR ", seconds)
}

// lockLimit returns what limitLockWait puts before each statement, or "".
func lockLimit(ctx context.Context) string {
	prefix, _ := ctx.Value(lockLimitKey{}).(string)
	return prefix
}

// exec runs a statement that writes. [version] is another random number each time that it is sent:
// the server may execute it twice, and two states of a row must not have the same version.
func (d *Driver) exec(ctx context.Context, statement string, args ...any) (out execResult, err error) {
	out.repeated, err = d.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		out.version, out.sent = rand.Int64N(1<<62), driver.Now()
		text := strings.ReplaceAll(statement, "[version]", strconv.FormatInt(out.version, 10))
		res, err := conn.ExecContext(ctx, lockLimit(ctx)+complete(text, args...))
		if err != nil {
			return err
		}
		if out.rows, err = res.RowsAffected(); err != nil {
			return err
		}
		out.id, err = res.LastInsertId()
		return err
	})
	return out, err
}

// query runs a statement that reads, and calls scan for each row.
func (d *Driver) query(ctx context.Context, statement string, args []any, scan func(*sql.Rows) error) error {
	text := lockLimit(ctx) + complete(statement, args...)
	_, err := d.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		rows, err := conn.QueryContext(ctx, text)
		if err != nil {
			return err
		}
		seen := false
		err = forEachRow(rows, func(rows *sql.Rows) error { seen = true; return scan(rows) })
		if seen && isConnectionError(err) {
			// The query can't be repeated, because the caller has seen rows.
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return err
	})
	return err
}

// forEachRow calls scan for each row of a result.
func forEachRow(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer func() { _ = rows.Close() }() // Err reports all errors
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// run has fn execute a statement. It retries if the server has rolled the statement back for a
// transient reason, or if the connection failed or leads to a server that accepts no writes.
// repeated reports a retry after a failure of the connection.
func (d *Driver) run(ctx context.Context, fn func(context.Context, *sql.Conn) error) (repeated bool, err error) {
	const maxRollbacks, maxFailures = 8, 32 // tries; a dead connection may cost two
	created, oldConns := false, d.db.Stats().OpenConnections
	for try := 1; ; try++ {
		err := d.runOnce(ctx, fn)
		switch {
		case err == nil || ctx.Err() != nil:
			return repeated, d.explain(ctx, err)
		case isConnectionError(err) && !errors.Is(err, driver.ErrUnavailable) && try < maxFailures:
			repeated = true
		case refusesWrites(err) && try <= oldConns: // runOnce has thrown that connection away
		case code(err) == noSuchTable && !created: // the locks that it had are lost, and nothing else is wrong
			if err := d.create(ctx); err != nil {
				return repeated, err
			}
			created = true
		case isRolledBack(err) && try < maxRollbacks && (code(err) != lockWaitTimeout || lockLimit(ctx) == ""):
			time.Sleep(rand.N(time.Duration(try) * time.Millisecond))
		default:
			return repeated, d.explain(ctx, err)
		}
	}
}

// runOnce has fn execute a statement on a connection of the pool. If the server refuses writes, the
// connection does not return to the pool: it was opened when the server was the primary, and a new
// connection may lead to the server that is the primary now.
func (d *Driver) runOnce(ctx context.Context, fn func(context.Context, *sql.Conn) error) error {
	if !isAdmitted(ctx) {
		leave, err := d.acquiring.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	conn, err := d.db.Conn(ctx)
	switch {
	case err != nil && d.rows.Life.Over():
		return driver.ErrClosed // the pool is closed, too
	case isConnectionError(err): // a new connection, so another try would soon fail, too
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case err != nil:
		return err
	}
	began := time.Now()
	switch err = fn(ctx, conn); {
	case refusesWrites(err):
		hangUp(conn)
	case err != nil && code(err) == 0 && ctx.Err() != nil && time.Since(began) > maxLockWait+time.Second:
		// It waited for no lock, so the server did not answer. A NAT may have lost the idle ones, too.
		// A shorter stall must not cost them: a server that is full would give renewals no other.
		d.db.SetMaxIdleConns(-1)
		d.db.SetMaxIdleConns(maxIdle)
	}
	_ = conn.Close() // it returns to the pool, unless it is closed
	return err
}

// complete inserts arguments into a statement. The driver does not prepare statements: the server
// limits how many there may be on all connections together, and a statement that is not prepared
// takes one round trip with any settings of the user. complete panics if an argument has no
// literal.
func complete(statement string, args ...any) string {
	parts := strings.Split(statement, "?")
	if len(parts) != len(args)+1 {
		panic(fmt.Sprintf("mysqllock: %d arguments for %s", len(args), statement))
	}
	text := make([]byte, 0, 2*len(statement))
	for i, part := range parts {
		text = append(text, part...)
		if i < len(args) {
			text = appendLiteral(text, args[i])
		}
	}
	return string(text)
}

// appendLiteral appends a value as SQL. It is the same in any sql_mode and any character set: text
// with a quote, a backslash, or bytes that are not ASCII becomes hexadecimal.
func appendLiteral(to []byte, value any) []byte {
	switch v := value.(type) {
	case int:
		return strconv.AppendInt(to, int64(v), 10)
	case int64:
		return strconv.AppendInt(to, v, 10)
	case float64:
		return strconv.AppendFloat(to, v, 'f', -1, 64)
	case bool:
		return append(to, map[bool]byte{false: '0', true: '1'}[v])
	case []byte:
		if bytes.ContainsFunc(v, func(r rune) bool { return (r < ' ' || r > '~') && r != '\n' || r == '\'' || r == '\\' }) {
			return append(hex.AppendEncode(append(to, "x'"...), v), '\'')
		}
		return append(append(append(to, "_binary'"...), v...), '\'')
	}
	panic(fmt.Sprintf("mysqllock: no literal for a %T", value))
}

// forNames returns a statement for n names.
func forNames(statement string, n int) string {
	statement = strings.ReplaceAll(statement, "[names]", strings.TrimPrefix(strings.Repeat(", ?", n), ", "))
	return strings.ReplaceAll(statement, "[cases]", strings.TrimSpace(strings.Repeat("WHEN ? THEN ? ", n)))
}

// maxNames is the most names in a statement.
const maxNames = 256

// nameArgs returns names as arguments.
func nameArgs(all []string) []any {
	args := make([]any, len(all))
	for i, name := range all {
		args[i] = []byte(name)
	}
	return args
}

// backOff waits for a random time before the next try to change a row. The time doubles with each
// race that was lost, up to half a second. A client that loses waits for the row's lock before it
// knows, and InnoDB compares each client in that queue with all others.
func backOff(ctx context.Context, lost int) error {
	if lost == 0 {
		return nil
	}
	select {
	case <-time.After(rand.N(time.Millisecond << min(lost, 9))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
