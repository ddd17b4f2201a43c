package pglock

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	return d.rows.Status(ctx, name)
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks nobody.
// It may or may not see changes that are made meanwhile. If some rows are malformed, List lists
// all others and then returns a [driverkit.RowError] for the first of those.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return d.rows.List(ctx, prefix, yield)
}

// readPage reads the next 100 rows that may have holders or waiters.
func (d *Driver) readPage(ctx context.Context, prefix, after string) (page []*state, err error) {
	from, last := prefix, prefix+strings.Repeat("\U0010ffff", driver.MaxName/4) // no name with the prefix is greater
	if after != "" {
		from = after + "\x01" // no name lies between them: names have no NUL
	}
	args := []any{prefix, from, last}
	err = d.query(ctx, d.sql.list, args, func(row pgx.Rows) error {
		s, err := scanState(row)
		page = append(page, s)
		return err
	})
	if !isMalformed(err) {
		return page, err
	}
	var names []string
	err = d.query(ctx, d.sql.listNames, args, func(row pgx.Rows) error {
		var name string
		err := row.Scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	states, err := d.read(ctx, names)
	page = nil
	for _, name := range names {
		if s := states[name]; s != nil {
			page = append(page, s)
		}
	}
	return page, err
}

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, id string) error {
	return d.rows.Break(ctx, name, id)
}

// Withdraw implements [driver.Inspector].
func (d *Driver) Withdraw(ctx context.Context, name, id string) error {
	return d.rows.Withdraw(ctx, name, id)
}

func (d *Driver) withdrawWaiters(ctx context.Context, name, id string) error {
	return d.query(ctx, d.sql.withdraw, []any{name, id}, nil)
}

// breakLease ends a lease by force.
func (d *Driver) breakLease(ctx context.Context, name, id string) error {
	found, err := d.execOnce(ctx, d.sql.breakLease, []any{name, id})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return d.rowError(name, err)
}
