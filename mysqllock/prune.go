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
	exec := func(tries int, statement string, args ...any) error {
		for ; ; tries-- {
			_, err := d.exec(limitLockWait(ctx, 0), statement, args...)
			if code(err) != lockWaitTimeout {
				return err
			}
			if tries <= 1 {
				return nil
			}
			time.Sleep(rand.N(20 * time.Millisecond))
		}
	}
	for chunk := range slices.Chunk(found, maxNames) {
		if err := exec(1, forNames(d.sql.Prune, len(chunk)), slices.Concat([]any{old, old}, nameArgs(chunk))...); err != nil {
			return err
		}
	}
	var highest int64
	err = d.query(ctx, d.sql.HighestToken, []any{old, rows.MaxTokenLead.Microseconds()},
		func(row *sql.Rows) error { return row.Scan(&highest) })
	if err == nil && highest > 0 {
		err = exec(50, d.sql.SetFloor, highest, highest)
	}
	return err
}
