package mysqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

const (
	// pruneAfter is how many rows a driver creates before it prunes.
	pruneAfter = 4096

	// pruneAge is how long a row must have been unused before it is pruned.
	pruneAge = time.Hour

	// maxTokenLead is how far a token may be ahead of the server's clock for its lock to be pruned.
	maxTokenLead = 24 * time.Hour
)

// countNewRow counts a row that the driver has created, and prunes after every pruneAfter rows.
func (d *Driver) countNewRow() {
	// If pruning fails, the next call does it.
	d.prunes.Note(pruneAfter, d.life, func() { _ = d.prune(d.life.Context(), pruneAge) })
}

// Prune forgets the locks that nobody holds or waits for, and that have not been used for the
// given time, which is an hour at least. A driver prunes by itself after every 4096 locks that it
// was the first to use.
//
// Prune never lets a token go back: it notes the greatest token of the locks to be forgotten, and
// forgets only locks whose tokens an earlier call has noted. So it takes two calls to forget a
// lock. It keeps a lock whose token is more than a day ahead of the server's clock: noting that
// token would raise the tokens of all new locks.
func (d *Driver) Prune(ctx context.Context, unused time.Duration) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	return d.prune(ctx, max(unused, pruneAge))
}

func (d *Driver) prune(ctx context.Context, age time.Duration) error {
	old := age.Microseconds()
	found, err := d.stale(ctx, old)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(found, batchSizes[len(batchSizes)-1]) {
		n := batchSize(len(chunk))
		if _, err := d.exec(ctx, expandNames(d.sql.prune, n), slices.Concat([]any{old, old}, nameArgs(chunk, n))...); err != nil {
			return err
		}
	}
	var highest int64
	err = d.query(ctx, d.sql.highestToken, []any{old, maxTokenLead.Microseconds()}, func(rows *sql.Rows) error { return rows.Scan(&highest) })
	if err == nil && highest > 0 {
		_, err = d.exec(ctx, d.sql.setFloor, highest, highest)
	}
	return err
}

// stale returns the names of rows that may be deleted. It locks no rows.
func (d *Driver) stale(ctx context.Context, old int64) (found []string, err error) {
	err = d.query(ctx, d.sql.stale, []any{old, old}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		found = append(found, name)
		return err
	})
	return found, err
}
