package rows

import (
	"cmp"
	"context"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
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
