package pglock

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// Tx takes a lock that lasts as long as the transaction tx, and ends with its commit or rollback, or with its
// connection. It is for data in the same database: what is read and written in tx after Tx is guarded by the lock
// without a token, because the lock can't be lost before the transaction is.
//
// The lock is PostgreSQL's advisory lock of the name's key ([NameKey], unless [TxKey] says another), so it excludes the
// holders of a [NewSession] with the same keys, but not those of rows ([New]). Within one session it is taken again
// without a wait: two calls for one name in one transaction do not exclude each other.
//
// Tx waits for as long as ctx lives, or as [TxWait] and [TxNoWait] say; it then answers [driver.ErrHeld], and tx can
// still be used. A context that ends while the server waits costs the connection, as always with pgx. A transaction that
// is REPEATABLE READ is a [driver.ErrInvalid]: it would go on to read what stood there before it waited. One that is
// SERIALIZABLE fails in that case when it commits, and has to be repeated. Other errors are the server's.
func Tx(ctx context.Context, tx pgx.Tx, name string, opts ...TxOption) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	c := txConfig{key: NameKey, wait: -1}
	for _, opt := range opts {
		opt(&c)
	}
	if err := fresh(ctx, tx); err != nil {
		return err
	}
	if c.wait != 0 {
		return limited(ctx, tx, c.wait, func(tx pgx.Tx) error {
			call := c.key(name).call("pg_advisory_xact_lock", c.shared)
			_, err := tx.Exec(ctx, `SELECT `+call.sql, call.args...)
			return err
		})
	}
	call, got := c.key(name).call("pg_try_advisory_xact_lock", c.shared), false
	if err := tx.QueryRow(ctx, `SELECT `+call.sql, call.args...).Scan(&got); err != nil {
		return err
	}
	if !got {
		return driver.ErrHeld
	}
	return nil
}

// A TxOption changes how [Tx] takes a lock.
type TxOption func(*txConfig)

type txConfig struct {
	key    func(string) Key
	wait   time.Duration // negative: as long as the context lives
	shared bool
}

// TxNoWait has [Tx] answer [driver.ErrHeld] at once if the lock is taken.
func TxNoWait() TxOption { return TxWait(0) }

// TxWait limits the wait of [Tx]. The server counts it, in whole milliseconds. Zero is [TxNoWait].
func TxWait(d time.Duration) TxOption { return func(c *txConfig) { c.wait = max(d, 0) } }

// TxShared asks for the read side: many at once, or one that is not shared.
func TxShared() TxOption { return func(c *txConfig) { c.shared = true } }

// TxKey sets how the name becomes a key, as [Keys] does for sessions.
func TxKey(key func(name string) Key) TxOption { return func(c *txConfig) { c.key = key } }

// Row reads a row of the caller's own and locks it until tx ends, so that it can be changed by what was read:
//
//	var status string
//	err := pglock.Row(ctx, tx, 0, "SELECT status FROM orders WHERE id = $1", id).Scan(&status)
//
// The query is a SELECT without a locking clause; Row adds FOR UPDATE. With a wait of zero it does not wait for who has
// the row locked, with a positive one it waits for that long, and with a negative one for as long as ctx lives. Scan
// then answers [driver.ErrHeld], and tx can still be used. A row that is not there, any more or at all, is
// [pgx.ErrNoRows]; one that was changed while we waited is read as it is now, if it still matches. In a transaction that is
// REPEATABLE READ or SERIALIZABLE such a change is the server's error 40001.
func Row(ctx context.Context, tx pgx.Tx, wait time.Duration, query string, args ...any) pgx.Row {
	return lockedRow{ctx, tx, wait, query, args}
}

type lockedRow struct {
	ctx   context.Context //nolint:containedctx // as pgx.Row: it is one call in two parts
	tx    pgx.Tx
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
	return limited(r.ctx, r.tx, r.wait, func(tx pgx.Tx) error {
		return tx.QueryRow(r.ctx, r.query+clause, r.args...).Scan(dest...)
	})
}

// limited runs fn in a savepoint of tx, so that its failure does not cost the whole transaction, and under a
// lock_timeout if wait is positive. What takes longer is an ErrHeld.
func limited(ctx context.Context, tx pgx.Tx, wait time.Duration, fn func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if wait < 0 {
			return fn(tx)
		}
		var before string
		const set = `SELECT current_setting('lock_timeout'), set_config('lock_timeout', $1, true)`
		limit := fmt.Sprintf("%dms", max(wait.Milliseconds(), 1))
		if err := tx.QueryRow(ctx, set, limit).Scan(&before, nil); err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return err // the setting goes with the savepoint
		}
		_, err := tx.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, before)
		return err
	})
	if code(err) == lockNotAvailable {
		return fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return err
}

// fresh refuses transactions that go on to see the database as it was before they got the lock.
func fresh(ctx context.Context, tx pgx.Tx) error {
	var level string
	err := tx.QueryRow(ctx, `SELECT current_setting('transaction_isolation')`).Scan(&level)
	if err == nil && level == "repeatable read" {
		return fmt.Errorf("%w transaction: it is REPEATABLE READ, and would not see what the holder before has written; "+
			"use READ COMMITTED or SERIALIZABLE", driver.ErrInvalid)
	}
	return err
}

// Token returns the next fencing token of a name: greater than all that it, or a lease of this driver's table, ever had.
// It is for holders of [Tx], who call it when they have the lock.
//
// It is committed at once, on a connection of the driver's pool, and not in the caller's transaction: taken back with
// that, the same token would be given to the next holder, while what the first one wrote elsewhere bears it already. So
// it needs a second connection while the transaction has one.
func (d *Driver) Token(ctx context.Context, name string) (uint64, error) {
	if err := driver.CheckName(name); err != nil {
		return 0, err
	}
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return 0, err
	}
	inner, cancel := life.Detached(ctx)
	defer cancel()
	if err := d.prepare(inner); err != nil {
		return 0, err
	}
	var token int64
	err := d.query(inner, d.sql.next, []any{name}, func(rows pgx.Rows) error { return rows.Scan(&token) })
	return uint64(token), err
}
