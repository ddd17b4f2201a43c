package rows

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// pruneAge is how long a row must have been unused before it is pruned.
	pruneAge = time.Hour

	// MaxTokenLead is how far a token may be ahead of the server's clock. A row with a higher token
	// is not pruned: the floor would rise to that token, and so would the tokens of all new locks.
	MaxTokenLead = 24 * time.Hour
)

// NoteNewRow records that the driver has created a row. One in 500 calls prunes in the background,
// unless the driver still does. That deletes up to 1,000 rows, so that more go than come, even if
// each process creates a single one.
func (d *Driver) NoteNewRow() {
	if rand.IntN(500) > 0 || !d.pruning.CompareAndSwap(false, true) {
		return
	}
	d.Life.Go(func() {
		defer d.pruning.Store(false)
		_ = d.prune(d.Life.Context(), pruneAge) // if it fails, the next one will do
	})
}

// Prune forgets up to 1,000 of the locks that nobody holds or waits for, and that have not been
// used for the given time, which is an hour at least. A driver prunes by itself, on average once
// per 500 locks that it was the first to use.
//
// Prune never lets a token go back: it notes the greatest token of the locks to be forgotten, and
// forgets only locks whose tokens an earlier call has noted. So it takes two calls to forget a
// lock. It keeps a lock whose token is more than a day ahead of the server's clock: noting that
// token would raise the tokens of all new locks.
func (d *Driver) Prune(ctx context.Context, unused time.Duration) error {
	if err := d.Life.Ready(ctx); err != nil {
		return err
	}
	return d.prune(ctx, max(unused, pruneAge))
}

func (d *Driver) prune(ctx context.Context, unused time.Duration) error {
	d.prepared.Store(false) // somebody may have deleted the row of the floor
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	return d.backend.Prune(ctx, unused)
}
