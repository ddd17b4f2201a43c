package mysqllock

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

const (
	// pruneAfter is how many rows a driver makes before it looks for ones that nobody needs.
	pruneAfter = 4096

	// pruneAge is for how long a row must not have been used.
	pruneAge = time.Hour
)

// made counts a row that the driver has made, and prunes once in a while.
func (d *Driver) made() {
	d.prunes.Note(pruneAfter, d.life, func() { _ = d.prune(d.life.Context(), pruneAge) }) // what is not done now is done next time
}

// Prune forgets the locks that nobody holds or waits for and that were not used for the given time, and for an hour at
// least. A driver does so by itself after every 4096 locks that it was the first to use.
//
// It never lets a token go back: the greatest token of what may be forgotten is noted first, and what is forgotten is
// what was noted an earlier time, so that it takes two calls to forget a lock.
func (d *Driver) Prune(ctx context.Context, unused time.Duration) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
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
	for chunk := range slices.Chunk(found, sizes[len(sizes)-1]) {
		n := size(len(chunk))
		if _, err := d.exec(ctx, forNames(d.sql.prune, n), slices.Concat([]any{old, old}, names(chunk, n))...); err != nil {
			return err
		}
	}
	var highest int64
	err = d.query(ctx, d.sql.highest, []any{old}, func(rows *sql.Rows) error { return rows.Scan(&highest) })
	if err == nil && highest > 0 {
		_, err = d.exec(ctx, d.sql.raise, highest, highest)
	}
	return err
}

// stale returns the names of rows that may be forgotten. They are looked for without locking any.
func (d *Driver) stale(ctx context.Context, old int64) (found []string, err error) {
	err = d.query(ctx, d.sql.stale, []any{old, old}, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		found = append(found, name)
		return err
	})
	return found, err
}
