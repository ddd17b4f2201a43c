package pglock

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// readPage reads the next 100 rows that may have holders or waiters.
func (d *Driver) readPage(ctx context.Context, prefix, after string) (page []*state, err error) {
	from, last := prefix, prefix+strings.Repeat("\U0010ffff", driver.MaxName/4) // no name with the prefix is greater
	if after != "" {
		from = after + "\x01" // no name lies between them: names have no NUL
	}
	var names []string
	err = d.run(ctx, func() {}, func() { names = nil }, d.sql.List, []any{prefix, from, last}, func(row pgx.Rows) error {
		var name string
		err := row.Scan(&name)
		names = append(names, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	states, err := d.read(ctx, names)
	for _, name := range names {
		page = append(page, cmp.Or(states[name], &state{Name: name})) // it may be gone
	}
	return page, err
}

func (d *Driver) withdrawWaiters(ctx context.Context, name, id string) error {
	return d.query(ctx, d.sql.Withdraw, []any{name, id}, nil)
}

// breakLease ends a lease by force. A statement that may have been executed is not repeated,
// because it would find nothing the second time.
func (d *Driver) breakLease(ctx context.Context, name, id string) error {
	found := false
	err := d.whileFull(ctx, func() error {
		return d.run(ctx, nil, func() { found = false }, d.sql.BreakLease, []any{name, id},
			func(pgx.Rows) error { found = true; return nil })
	})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return d.rowError(name, err)
}
