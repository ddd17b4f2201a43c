package pglock

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// Prune forgets up to 1,000 of the locks that nobody holds or waits for, and that have not been
// used for the given time, which is an hour at least. A driver prunes by itself, on average once
// per 500 locks that it was the first to use.
//
// Prune never lets a token go back: it notes the greatest token of the locks to be forgotten, and
// forgets only locks whose tokens an earlier call has noted. So it takes two calls to forget a
// lock. It keeps a lock whose token is more than a day ahead of the server's clock: noting that
// token would raise the tokens of all new locks.
func (d *Driver) Prune(ctx context.Context, unused time.Duration) error {
	return d.rows.Prune(ctx, unused)
}

func (d *Driver) prune(ctx context.Context, unused time.Duration) error {
	if err := d.query(ctx, d.sql.Prune, []any{unused.Microseconds()}, nil); err != nil {
		return err
	}
	return d.query(ctx, d.sql.SetFloor, []any{unused.Microseconds(), rows.MaxTokenLead.Microseconds()}, nil)
}
