package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// transactions is what the names of rows begin with that [Tx] locks: no lock has a NUL in its name.
const transactions = "\x00t"

// touch locks the row of a name until the transaction ends, and makes it if it is not there: name.
const touch = `INSERT INTO {table} (name, ` + columns + `) VALUES (?, 1, 0, 0, 0, 0, 0, 0, '', '', '', NULL, ` + clock + `)
	ON DUPLICATE KEY UPDATE used = ` + clock

// Tx takes a lock that lasts as long as the transaction tx, and ends with its commit or rollback, or with its connection.
// It is for data in the same database: what is read and written in tx after Tx is guarded by the lock without a token,
// because the lock can't be lost before the transaction is.
//
// The lock is InnoDB's, on a row for the name in the table of [New], which must be there already (see [TxTable]). It excludes other calls of
// Tx, but neither leases nor sessions. Within one transaction it is taken again without a wait.
//
// Tx waits for as long as ctx lives, or as [TxWait] and [TxNoWait] say; it then answers [driver.ErrHeld], and tx can still be
// used. A context that ends while the server waits costs the connection, and with it the transaction. A deadlock with
// statements of the caller's is the server's error 1213, and costs the transaction as well. A server with
// innodb_rollback_on_timeout is a [driver.ErrInvalid]: it gives a transaction up without a word. Other errors are the
// server's.
//
// By default transactions are REPEATABLE READ: all that they read without locking is as it was at the first such SELECT. So
// call Tx before that, or read with FOR UPDATE, as [Row] does.
func Tx(ctx context.Context, tx *sql.Tx, name string, opts ...TxOption) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	c := txConfig{wait: -1}
	for _, opt := range opts {
		opt(&c)
	}
	table, err := quote(cmp.Or(c.table, "snib_locks"))
	if err != nil {
		return err
	}
	row := []byte(transactions + name)
	return limited(ctx, tx, c.wait, func() error {
		if c.wait == 0 { // only a SELECT can do without a wait
			var one int
			err := tx.QueryRowContext(ctx, render(`SELECT 1 FROM {table} WHERE name = ? FOR UPDATE NOWAIT`, table), row).Scan(&one)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, render(touch, table), row)
		return err
	})
}

// A TxOption changes how [Tx] takes a lock.
type TxOption func(*txConfig)

type txConfig struct {
	table string
	wait  time.Duration // negative: as long as the context lives
}

// TxNoWait has [Tx] answer [driver.ErrHeld] at once if the lock is taken.
func TxNoWait() TxOption { return TxWait(0) }

// TxWait limits the wait of [Tx]. The server counts in whole seconds, so it is rounded up to those. Zero is [TxNoWait].
func TxWait(d time.Duration) TxOption { return func(c *txConfig) { c.wait = max(d, 0) } }

// TxTable names the table whose rows [Tx] locks, as [Table] does for leases. The default is snib_locks. It is made by
// [Schema], or by the first lease of a [New]; Tx can't make it, as that would end the transaction.
func TxTable(name string) TxOption { return func(c *txConfig) { c.table = name } }

// Row reads a row of the caller's own and locks it until tx ends, so that it can be changed by what was read:
//
//	var status string
//	err := mysqllock.Row(ctx, tx, 0, "SELECT status FROM orders WHERE id = ?", id).Scan(&status)
//
// The query is a SELECT without a locking clause; Row adds FOR UPDATE. With a wait of zero it does not wait for who has
// the row locked, with a positive one it waits for that long, rounded up to whole seconds, and with a negative one for as
// long as ctx lives. Scan then answers [driver.ErrHeld], and tx can still be used. A row that is not there, any more or at all, is
// [sql.ErrNoRows]; one that was changed while we waited is read as it is now, if it still matches, whatever the
// transaction has read before. MySQL before 8.0 and MariaDB before 10.3 know no wait of zero.
func Row(ctx context.Context, tx *sql.Tx, wait time.Duration, query string, args ...any) *LockedRow {
	return &LockedRow{ctx, tx, wait, query, args}
}

// A LockedRow is what [Row] returns.
type LockedRow struct {
	ctx   context.Context //nolint:containedctx // as sql.Row: it is one call in two parts
	tx    *sql.Tx
	wait  time.Duration
	query string
	args  []any
}

// Scan asks for the row, and copies its columns, as [sql.Row.Scan] does.
func (r *LockedRow) Scan(dest ...any) error {
	clause := "\nFOR UPDATE"
	if r.wait == 0 {
		clause += " NOWAIT"
	}
	return limited(r.ctx, r.tx, r.wait, func() error {
		return r.tx.QueryRowContext(r.ctx, r.query+clause, r.args...).Scan(dest...)
	})
}

// limited runs fn with a limit to its waits for locks. What takes longer is an ErrHeld. Without a limit fn is run again
// when the server's own one is over.
func limited(ctx context.Context, tx *sql.Tx, wait time.Duration, fn func() error) (err error) {
	var before int64
	var giveUp bool
	const settings = `SELECT @@innodb_lock_wait_timeout, @@innodb_rollback_on_timeout` // of no table: it begins no snapshot
	if err := tx.QueryRowContext(ctx, settings).Scan(&before, &giveUp); err != nil {
		return err
	}
	if giveUp {
		return fmt.Errorf("%w server: with innodb_rollback_on_timeout it ends a transaction whose lock is taken, and says "+
			"nothing of it", driver.ErrInvalid)
	}
	if wait >= 0 {
		limit := int64(max(1, math.Ceil(wait.Seconds())))
		set := func(limit int64) error {
			_, err := tx.ExecContext(ctx, fmt.Sprintf(`SET SESSION innodb_lock_wait_timeout = %d`, limit))
			return err
		}
		if err := set(limit); err != nil {
			return err
		}
		defer func() { err = cmp.Or(err, set(before)) }()
	}
	for {
		err := fn()
		switch {
		case !slices.Contains([]uint16{lockWaitTimeout, lockNoWait}, code(err)):
			return err
		case wait >= 0:
			return fmt.Errorf("%w: %w", driver.ErrHeld, err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// Token returns the next fencing token of a name: greater than all that it, or a lease of this driver's table, ever had.
// It is for holders of [Tx], who call it when they have the lock.
//
// It is committed at once, on a connection of the driver's db, and not in the caller's transaction: taken back with that,
// the same token would be given to the next holder, while what the first one wrote elsewhere bears it already. So it needs
// a second connection while the transaction has one.
func (d *Driver) Token(ctx context.Context, name string) (token uint64, err error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	err = d.inspect(ctx, func(ctx context.Context) error {
		out, err := d.exec(ctx, d.sql.next, []byte(name))
		if token = uint64(out.id); err != nil || out.rows == 1 {
			return err
		}
		return d.change(ctx, name, func(s *state) (bool, error) { // there was no row
			token = s.next(1)
			return true, nil
		})
	})
	return token, err
}
