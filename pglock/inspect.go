package pglock

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	err := d.inspect(ctx, d.sql.read, []any{[]string{name}}, func(s state) { st = s.status(d.maxLeft()) })
	return st, err
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks nobody.
// It may or may not see changes that are made meanwhile.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	// No name with the prefix is greater.
	last := prefix + strings.Repeat("\U0010ffff", driver.MaxName/4)
	for from := prefix; ; {
		var page []driver.Status
		err := d.inspect(ctx, d.sql.list, []any{prefix, from, last}, func(s state) { page = append(page, s.status(d.maxLeft())) })
		if err != nil || len(page) == 0 {
			return err
		}
		for _, st := range page {
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
			from = st.Name + "\x01" // no name lies between them: names have no NUL
		}
	}
}

// maxLeft is the longest remaining time that is reported of a lease. In a session it is what
// every lease has left at least: the session pings after a third of its timeout.
func (d *Driver) maxLeft() time.Duration {
	if d.session != nil {
		return d.conf.sessionTimeout * 2 / 3
	}
	return math.MaxInt64
}

// inspect runs a statement that only reads.
func (d *Driver) inspect(ctx context.Context, sql string, args []any, visit func(state)) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	inner, done := driverkit.Detached(ctx)
	defer done()
	if err := d.prepare(inner); err != nil {
		return err
	}
	return d.query(inner, sql, args, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		visit(s)
		return err
	})
}

// Break implements [driver.Inspector]. A hold in a session loses its row at once. It loses its
// advisory lock as soon as its process learns of it.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if err := d.prepare(inner); err != nil {
		return err
	}
	found, err := d.execOnce(inner, d.sql.breakLease, []any{name, int64(token), owner})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}
