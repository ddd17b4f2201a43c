package mysqllock

import (
	"context"
	"database/sql"

	"github.com/sniblock/snib/driver"
)

// Current checks, in a transaction of the caller's own in the same database, that the hold with that fencing token has not ended, and
// keeps it so until tx ends: what is read and written in tx after Current is guarded by the lock, as if the data looked at tokens. The answer
// is [driver.ErrLost] if the hold has ended.
//
// Nobody gets the lock before tx ends. It is not renewed before, either: a transaction that takes longer than the rest of the lease
// loses the lock when it ends, and is valid nevertheless. Holds that pass from one goroutine to the next within a process are one to
// Current. In a transaction that is REPEATABLE READ, which is the default, it has to come before the first reading.
func (d *Driver) Current(ctx context.Context, tx *sql.Tx, name string, token uint64) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	var s state
	for range 2 { // the first one may have waited for the row, and its clock is that of when it began
		var err error
		if s, err = d.current(ctx, tx, name); err != nil {
			return err
		}
	}
	for _, h := range s.holders {
		if !h.Kept && h.Token <= token && token < h.Token+uint64(max(h.Tokens, 1)) {
			return nil
		}
	}
	return driver.ErrLost
}

func (d *Driver) current(ctx context.Context, tx *sql.Tx, name string) (s state, err error) {
	rows, err := tx.QueryContext(ctx, d.sql.current, []byte(name))
	if err != nil {
		return s, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err has said it
	for rows.Next() {
		if s, err = scan(rows); err != nil {
			return s, err
		}
	}
	return s, rows.Err()
}
