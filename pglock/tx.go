package pglock

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// Tx takes a lock that lasts as long as the transaction tx: it ends with the commit, the
// rollback, or the connection. It also ends if tx is rolled back to a savepoint from before Tx.
// It is for data in the same database: the lock guards the reads and writes of tx after Tx without
// a token, because the lock can't be lost before the transaction is.
//
// A transaction of pgx is passed as it is, and one of database/sql by [SQLTx].
//
// The lock is PostgreSQL's advisory lock with the number [NameKey] of the name. So it excludes
// the holders of a [NewSession] without the option [Keys], but not those of rows ([New]). It is
// reentrant within a session: two calls for one name in one transaction do not exclude each
// other.
//
// If another transaction or session has the lock, Tx does not wait if wait is zero, waits for that
// long if it is positive, and waits until ctx is done if it is negative, whatever the transaction's
// lock_timeout is. After such a limit it returns [driver.ErrHeld], and tx can still be used. If
// ctx is done while the server waits, the connection is lost, and the transaction with it.
//
// A transaction that is REPEATABLE READ or SERIALIZABLE is a [driver.ErrInvalid], because it would
// still read the data as of before the wait, and its commit does not notice that if the previous
// holder was READ COMMITTED. A standby is a [driver.ErrUnavailable]. Other errors are the server's.
// After those of a wait, such as 57014 for statement_timeout, tx can still be used if its
// connection lives.
func Tx(ctx context.Context, tx Transaction, name string, wait time.Duration) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := checkTransaction(ctx, tx); err != nil {
		return err
	}
	if wait != 0 {
		return withLockTimeout(ctx, tx, wait, func() error {
			_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, NameKey(name))
			return err
		})
	}
	got := false
	if err := tx.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, NameKey(name)).Scan(&got); err != nil {
		return err
	}
	if !got {
		return driver.ErrHeld
	}
	return nil
}

// Row reads one of the caller's rows and locks it until tx ends, so that it can be changed
// depending on what was read:
//
//	var status string
//	err := pglock.Row(ctx, tx, 0, "SELECT status FROM orders WHERE id = $1", id).Scan(&status)
//
// A transaction of pgx is passed as it is, and one of database/sql by [SQLTx].
//
// The query is a SELECT without a locking clause; Row adds FOR UPDATE. If another transaction has
// locked the row, Row does not wait if wait is zero, waits for that long if it is positive, and
// waits until ctx is done if it is negative. After such a limit Scan returns [driver.ErrHeld],
// and tx can still be used.
//
// If the row does not exist, or was deleted meanwhile, Scan returns an error that matches
// [sql.ErrNoRows]; with pgx it also matches [pgx.ErrNoRows]. If the row was changed during the
// wait and still matches the query, Scan reads the new version. In a transaction that is
// REPEATABLE READ or SERIALIZABLE, such a change is the server's error 40001, and the transaction
// has to be repeated; what it reads from other rows may be as of before the wait.
func Row(ctx context.Context, tx Transaction, wait time.Duration, query string, args ...any) pgx.Row {
	return lockedRow{ctx, tx, wait, query, args}
}

type lockedRow struct {
	ctx   context.Context //nolint:containedctx // as pgx.Row: it is one call in two parts
	tx    Transaction
	wait  time.Duration
	query string
	args  []any
}

// Scan implements [pgx.Row].
func (r lockedRow) Scan(dest ...any) error {
	clause := "\nFOR UPDATE"
	if r.wait == 0 {
		clause += " NOWAIT"
	}
	return withLockTimeout(r.ctx, r.tx, r.wait, func() error {
		return r.tx.QueryRow(r.ctx, r.query+clause, r.args...).Scan(dest...)
	})
}

// withLockTimeout runs fn with a limit for its waits for locks; a negative one is no limit. A
// longer wait is an ErrHeld. fn runs in a savepoint, so that its failure does not abort the
// transaction. A text without parameters may contain two statements, because clients send it as a
// simple query.
func withLockTimeout(ctx context.Context, tx Transaction, wait time.Duration, fn func() error) error {
	var before string
	if err := tx.QueryRow(ctx, `SHOW lock_timeout`).Scan(&before); err != nil {
		return err
	}
	limit := min(max(wait.Milliseconds(), 1), math.MaxInt32)
	if wait < 0 {
		limit = 0 // which turns the setting off
	}
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SAVEPOINT snib; SET LOCAL lock_timeout = %d`, limit)); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%s'; RELEASE SAVEPOINT snib`, before))
		return err
	}
	// The rollback also restores the setting.
	if _, failed := tx.Exec(ctx, `ROLLBACK TO SAVEPOINT snib; RELEASE SAVEPOINT snib`); failed != nil {
		return fmt.Errorf("%w; the transaction can't be used any more: %w", err, failed)
	}
	if code(err) == lockNotAvailable {
		return fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return err
}

// checkTransaction refuses a transaction that would see the database as it was before it got the
// lock, or on a standby, where a lock excludes nobody on the primary.
func checkTransaction(ctx context.Context, tx Transaction) error {
	var level string
	var standby bool
	err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation'), pg_is_in_recovery()`).Scan(&level, &standby)
	switch {
	case err != nil:
		return err
	case standby:
		return errDemoted
	case level == "repeatable read" || level == "serializable":
		return driver.Invalidf("transaction: it is %s, and would not see what the previous holder has written; "+
			"use READ COMMITTED", strings.ToUpper(level))
	}
	return nil
}

// Token returns the next fencing token of a name. It is greater than all tokens that the name, or
// a lease of the name in this driver's table, has had before. It is for holders of [Tx], who call
// it when they have the lock.
//
// The token is committed at once, on a connection of the driver's pool, and not in the caller's
// transaction. If it were rolled back with that, the next holder would get the same token,
// although the first one may have written it elsewhere. So Token needs a second connection while
// the transaction has one.
func (d *Driver) Token(ctx context.Context, name string) (uint64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	var token int64
	err := d.rows.Inspect(ctx, func(ctx context.Context) error {
		return d.query(ctx, d.sql.NextToken, []any{name}, func(rows pgx.Rows) error { return rows.Scan(&token) })
	})
	return uint64(token), d.rowError(name, err)
}

// IsOwner checks, in a transaction of the caller in the same database, that the hold with the
// given fencing token has not ended. It then keeps the hold until tx ends: what tx reads and
// writes after IsOwner is guarded by the lock, as if the data compared tokens. If the hold has
// ended, IsOwner returns [driver.ErrLost].
//
// Nobody else gets the lock before tx ends. The lease can't be renewed before that either: if tx
// takes longer than the rest of the lease, the lock is lost when tx ends, but tx is valid
// nevertheless. IsOwner does not distinguish the holds that are handed over from one goroutine to
// the next within a process. In a transaction that is REPEATABLE READ or SERIALIZABLE, call
// IsOwner before the first read; if the lock's row has changed since then, IsOwner returns the
// server's error 40001.
func (d *Driver) IsOwner(ctx context.Context, tx Transaction, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, d.sql.LockRow, []byte(name)); err != nil {
		return err
	}
	var n int
	// A second statement reads the clock, because the first one may have waited for the row.
	if err := tx.QueryRow(ctx, d.sql.Current, []byte(name), int64(token)).Scan(&n); err != nil {
		return d.rowError(name, err)
	}
	if n == 0 {
		return driver.ErrLost
	}
	return nil
}
