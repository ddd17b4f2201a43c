package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// lockRow keeps a lock's row as it is until the transaction ends: name.
const lockRow = `SELECT FROM {table} WHERE name = $1 FOR SHARE`

// current counts the holds with a token: name, token. The tokens of a hold that is handed over in its process are one hold's.
const current = `SELECT count(*) FROM (SELECT {clock} AS now) c CROSS JOIN {table} l CROSS JOIN LATERAL jsonb_array_elements(l.holders) e
WHERE l.name = $1 AND {live} AND NOT e ? 'kept'
	AND $2::bigint BETWEEN (e->>'token')::bigint AND (e->>'token')::bigint + (e->>'tokens')::bigint - 1`

// Current checks, in a transaction of the caller's own in the same database, that the hold with that fencing token has not ended, and
// keeps it so until tx ends: what is read and written in tx after Current is guarded by the lock, as if the data looked at tokens. The answer
// is [driver.ErrLost] if the hold has ended.
//
// Nobody gets the lock before tx ends. It is not renewed before, either: a transaction that takes longer than the rest of the lease
// loses the lock when it ends, and is valid nevertheless. Holds that pass from one goroutine to the next within a process are one to
// Current. In a transaction that is REPEATABLE READ or SERIALIZABLE it has to come before the first reading; if the lock's row has changed
// since, the answer is the server's error 40001.
func (d *Driver) Current(ctx context.Context, tx pgx.Tx, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, d.sql.lockRow, name); err != nil {
		return err
	}
	var n int
	// The clock is read by a statement of its own: the first one may have waited for the row.
	if err := tx.QueryRow(ctx, d.sql.current, name, int64(token)).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return driver.ErrLost
	}
	return nil
}
