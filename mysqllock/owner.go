package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/sniblock/snib/driver"
)

// IsOwner checks, in a transaction of the caller in the same database, that the hold with the
// given fencing token has not ended. It then keeps the hold until tx ends: what tx reads and
// writes after IsOwner is guarded by the lock, as if the data compared tokens. If the hold has
// ended, IsOwner returns [driver.ErrLost].
//
// Nobody else gets the lock before tx ends. The lease can't be renewed before that either: if tx
// takes longer than the rest of the lease, the lock is lost when tx ends, but tx is valid
// nevertheless. IsOwner does not tell apart the holds that are handed over from one goroutine to
// the next within a process. In a transaction that is REPEATABLE READ, which is the default, call
// IsOwner before the first read. In a Galera cluster IsOwner also writes the lock's row: if another
// node grants the lock meanwhile, the commit fails with 1213.
func (d *Driver) IsOwner(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	var s state
	// The first statement may have waited for the row, and its clock is that of its beginning.
	for range 2 {
		rows, err := tx.QueryContext(ctx, d.sql.ReadLocked, []byte(name))
		if err == nil {
			err = forEachRow(rows, func(rows *sql.Rows) (err error) { s, err = d.scanState(rows); return err })
		}
		if err = cmp.Or(err, s.Err); err != nil {
			return err
		}
		if s.readOnly {
			return errReplica
		}
	}
	for _, h := range s.Holders {
		if !h.Kept && h.Token <= token && token < h.Token+uint64(max(h.Tokens, 1)) {
			return d.touch(ctx, tx, name)
		}
	}
	return driver.ErrLost
}

// touch writes the row in tx if the server replicates with Galera. There a lock that only reads
// excludes nobody on other nodes: they could grant the lock before tx commits. With a write of the
// row, one of the two can't commit.
func (d *Driver) touch(ctx context.Context, tx *sql.Tx, name string) error {
	var variable, value string
	err := tx.QueryRowContext(ctx, `SHOW VARIABLES LIKE 'wsrep\_on'`).Scan(&variable, &value)
	if errors.Is(err, sql.ErrNoRows) || err == nil && value != "ON" {
		return nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, complete(d.sql.Touch, []byte(name)))
	}
	return err
}
