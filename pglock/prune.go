package pglock

import (
	"context"
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
	if err := d.query(ctx, d.sql.prune, []any{age.Microseconds()}, nil); err != nil {
		return err
	}
	return d.query(ctx, d.sql.raise, []any{age.Microseconds()}, nil)
}
