package mysqllock

import (
	"context"
	"database/sql"
	"math/rand/v2"
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
	// Behind a statement that waited for the row of the floor, all requests that read it would wait.
	// So none waits, and a later prune does what a locked row prevents.
	noWait := limitLockWait(ctx, 0)
	for chunk := range slices.Chunk(found, maxNames) {
		args := slices.Concat([]any{old, old}, nameArgs(chunk))
		if _, err := d.exec(noWait, forNames(d.sql.Prune, len(chunk)), args...); err != nil && code(err) != lockWaitTimeout {
			return err
		}
	}
	var highest int64
	err = d.query(ctx, d.sql.HighestToken, []any{old, rows.MaxTokenLead.Microseconds()},
		func(row *sql.Rows) error { return row.Scan(&highest) })
	for tries := 50; err == nil && highest > 0 && tries > 0; tries-- {
		if _, err := d.exec(noWait, d.sql.SetFloor, highest, highest); code(err) != lockWaitTimeout {
			return err
		}
		time.Sleep(rand.N(20 * time.Millisecond))
	}
	return err
}
