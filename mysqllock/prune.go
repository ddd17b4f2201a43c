package mysqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

func (d *Driver) prune(ctx context.Context, unused time.Duration) error {
	old := unused.Microseconds()
	var found []string
	err := d.query(ctx, d.sql.Stale, []any{old, old}, func(row *sql.Rows) error {
		found = append(found, "")
		return row.Scan(&found[len(found)-1])
	})
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(found, maxNames) {
		_, err := d.exec(limitLockWait(ctx, 0), forNames(d.sql.Prune, len(chunk)),
			slices.Concat([]any{old, old}, nameArgs(chunk))...)
		if err != nil && code(err) != lockWaitTimeout { // a later prune deletes rows beside a locked one
			return err
		}
	}
	var highest int64
	err = d.query(ctx, d.sql.HighestToken, []any{old, rows.MaxTokenLead.Microseconds()},
		func(row *sql.Rows) error { return row.Scan(&highest) })
	if err == nil && highest > 0 {
		_, err = d.exec(ctx, d.sql.SetFloor, highest, highest)
	}
	return err
}
