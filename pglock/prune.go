package pglock

import (
	"context"
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
	if err := d.query(ctx, d.sql.prune, []any{age.Microseconds()}, nil); err != nil {
		return err
	}
	return d.query(ctx, d.sql.setFloor, []any{age.Microseconds(), maxTokenLead.Microseconds()}, nil)
}
