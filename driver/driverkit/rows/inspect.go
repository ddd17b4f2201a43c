package rows

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// pruneAge is how long a row must have been unused before it is pruned.
	pruneAge = time.Hour

	// MaxTokenLead is how far a token may be ahead of the server's clock. A row with a higher token
	// is not pruned: the floor would rise to that token, and so would the tokens of all new locks.
	MaxTokenLead = 24 * time.Hour
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	err := d.Inspect(ctx, func(ctx context.Context) error {
		found, err := d.backend.Read(ctx, []string{name})
		if s := found[name]; s != nil {
			st, err = s.status(), cmp.Or(err, s.Err)
		}
		return err
	})
	return st, err
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks nobody.
// It may or may not see changes that are made meanwhile. If some rows are malformed, List lists
// all other rows, and then returns a [driverkit.RowError] for the first malformed one.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	var firstMalformed error
	for after := ""; ; {
		var page []*State
		err := d.Inspect(ctx, func(ctx context.Context) (err error) {
			page, err = d.backend.ReadPage(ctx, prefix, after)
			return err
		})
		if err != nil || len(page) == 0 {
			return cmp.Or(err, firstMalformed)
		}
		for _, s := range page {
			st := s.status()
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
			firstMalformed = cmp.Or(firstMalformed, s.Err)
			after = s.Name
		}
	}
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	return d.Inspect(ctx, func(ctx context.Context) error { return d.backend.Break(ctx, name, id) })
}

// Withdraw implements [driver.Inspector].
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	return d.Inspect(ctx, func(ctx context.Context) error { return d.backend.Withdraw(ctx, name, id) })
}

// Inspect prepares the store and runs fn, which answers a question about it.
func (d *Driver) Inspect(ctx context.Context, fn func(context.Context) error) error {
	if err := d.Life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.Life.During(ctx)
	defer cancel()
	inner, done := driverkit.Detached(ctx)
	defer done()
	if err := d.Prepare(inner); err != nil {
		return err
	}
	return fn(inner)
}

// Between returns the time from one moment in a row to another, both in microseconds. Anybody who
// may write to the table can put any number there. So Between returns 0 if to is not after from,
// and at most a hundred years, to which times can be added without an overflow.
func Between(from, to int64) time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	switch d := to - from; {
	case to <= from:
		return 0
	case d < 0 || d > most.Microseconds(): // the difference may overflow, too
		return most
	default:
		return time.Duration(d) * time.Microsecond
	}
}

// pruneTimeout bounds a prune in the background, which scans a table that may be large.
const pruneTimeout = time.Minute

// NoteNewRow records that the driver has created a row. One in 500 calls prunes in the background,
// unless the driver still does. That deletes up to 1,000 rows, so that more go than come, even if
// each process creates a single one.
func (d *Driver) NoteNewRow() {
	if rand.IntN(500) > 0 || !d.pruning.CompareAndSwap(false, true) {
		return
	}
	d.Life.Go(func() {
		defer d.pruning.Store(false)
		ctx, cancel := context.WithTimeoutCause(d.Life.Context(), pruneTimeout, errNoAnswer)
		defer cancel()
		_ = d.prune(ctx, pruneAge) // if it fails, the next one will do
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
