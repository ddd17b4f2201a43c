package mysqllock

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
)

// txPrefix begins the names of rows that [Tx] locks. No lock has a NUL in its name.
const txPrefix = "\x00t"

// txStatements are the statements of [Tx].
var txStatements = sync.OnceValue(func() statements { return newStatements(defaultTable) })

// Tx takes a lock that lasts as long as the transaction tx: it ends with the commit, the
// rollback, or the connection. It is for data in the same database: the lock guards the reads
// and writes of tx after Tx without a token, because the lock can't be lost before the
// transaction is.
//
// The lock is InnoDB's, on a row for the name in the table snib_locks of the connection's database.
// The table is created by [Schema], or by the first lease of a [New]; Tx can't create it, because
// that would end the transaction. The lock excludes other calls of Tx, but not leases. It is
// reentrant within a transaction.
//
// If another transaction has the lock, Tx does not wait if wait is zero, waits for that long,
// rounded up to whole seconds, if it is positive, and waits until ctx is done if it is negative.
// After such a limit it returns [driver.ErrHeld], and tx can still be used. If ctx is done while
// the server waits, the connection is lost, and the transaction with it. A deadlock with
// statements of the caller is the server's error 1213, and ends the transaction as well. A server
// with innodb_rollback_on_timeout is a [driver.ErrInvalid], because it rolls back a transaction
// without notice, and one that has set read_only is a [driver.ErrUnavailable]. Other errors are the
// server's.
//
// By default transactions are REPEATABLE READ: all reads without locking see the database as of
// the first such SELECT. So call Tx before that, or read with FOR UPDATE, as [Row] does.
func Tx(ctx context.Context, tx *sql.Tx, name string, wait time.Duration) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := checkTransaction(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, waitingFor(seconds(wait))+complete(txStatements().LockTxRow, []byte(txPrefix+name)))
	return heldError(err)
}

// Row reads one of the caller's rows and locks it until tx ends, so that it can be changed
// depending on what was read:
//
//	var status string
//	err := mysqllock.Row(ctx, tx, 0, "SELECT status FROM orders WHERE id = ?", id).Scan(&status)
//
// The query is a SELECT without a locking clause; Row adds FOR UPDATE. If another transaction has
// locked the row, Row does not wait if wait is zero, waits for that long, rounded up to whole
// seconds, if it is positive, and waits until ctx is done if it is negative. After such a limit
// Scan returns [driver.ErrHeld], and tx can still be used. If the row does not exist, or was
// deleted meanwhile, Scan returns [sql.ErrNoRows]. If the row was changed during the wait and
// still matches the query, Scan reads the new version, whatever the transaction has read before.
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

// Scan reads and locks the row, and copies its columns, as [sql.Row.Scan] does.
func (r *LockedRow) Scan(dest ...any) error {
	if err := checkTransaction(r.ctx, r.tx); err != nil {
		return err
	}
	query := fmt.Sprintf("%s\nFOR UPDATE WAIT %d", r.query, seconds(r.wait))
	return heldError(r.tx.QueryRowContext(r.ctx, query, r.args...).Scan(dest...))
}

// seconds returns for how many seconds a statement waits for locks. A negative wait is no limit.
func seconds(wait time.Duration) int64 {
	const noLimit = 31_536_000 // a year: WAIT sets lock_wait_timeout too, which may be no more
	if wait < 0 {
		return noLimit
	}
	return min(noLimit, int64(math.Ceil(wait.Seconds())))
}

// heldError returns err, or ErrHeld if a statement has waited for a lock for as long as it may.
func heldError(err error) error {
	if code(err) == lockWaitTimeout {
		return fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return err
}

// checkTransaction refuses a transaction on a server where a lock excludes nobody on the primary,
// or may be lost before the transaction ends. It reads no table, so it begins no snapshot.
func checkTransaction(ctx context.Context, tx *sql.Tx) error {
	var rollsBack, writable bool
	settings := "SELECT @@innodb_rollback_on_timeout, " + txStatements().Writable
	err := tx.QueryRowContext(ctx, settings).Scan(&rollsBack, &writable)
	switch {
	case err != nil:
		return err
	case !writable:
		return errReplica
	case rollsBack:
		return driver.Invalidf(
			"server: with innodb_rollback_on_timeout it ends a transaction whose lock is taken, and says " +
				"nothing of it")
	}
	return nil
}

// Token returns the next fencing token of a name. It is greater than all tokens that the name, or
// a lease of the name in this driver's table, has had before. It is for holders of [Tx], who call
// it when they have the lock.
//
// The token is committed at once, on a connection of the driver, and not in the caller's
// transaction. If it were rolled back with that, the next holder would get the same token,
// although the first one may have written it elsewhere.
func (d *Driver) Token(ctx context.Context, name string) (token uint64, err error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	err = d.rows.Inspect(ctx, func(ctx context.Context) error {
		return d.change(ctx, name, func(s *state) (bool, error) {
			token = s.nextTokens(1)
			return true, nil
		})
	})
	return token, err
}
