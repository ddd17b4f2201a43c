package pglock

import (
	"context"

	"github.com/sniblock/snib/driver"
)

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
	if _, err := tx.Exec(ctx, d.sql.LockRow, name); err != nil {
		return err
	}
	var n int
	// A second statement reads the clock, because the first one may have waited for the row.
	if err := tx.QueryRow(ctx, d.sql.Current, name, int64(token)).Scan(&n); err != nil {
		return d.rowError(name, err)
	}
	if n == 0 {
		return driver.ErrLost
	}
	return nil
}
