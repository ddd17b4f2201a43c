package pglock

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	err := d.inspect(ctx, d.sql.look, []any{[]string{name}}, func(s state) { st = s.status(d.left()) })
	return st, err
}

// List implements [driver.Inspector]. It reads one page after the other, so that a slow yield holds nobody up; what
// changes in the meantime is seen or not.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	last := prefix + strings.Repeat("\U0010ffff", driver.MaxName/4) // nothing that begins with prefix is greater
	for from := prefix; ; {
		var page []driver.Status
		err := d.inspect(ctx, d.sql.list, []any{prefix, from, last}, func(s state) { page = append(page, s.status(d.left())) })
		if err != nil || len(page) == 0 {
			return err
		}
		for _, st := range page {
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
			from = st.Name + "\x01" // no name lies between: NUL is in none
		}
	}
}

// left is how long a hold lasts at most, and at least in a session, which pings after a third of its timeout.
func (d *Driver) left() time.Duration {
	if d.session != nil {
		return d.conf.idle * 2 / 3
	}
	return math.MaxInt64
}

// inspect runs a statement that only reads.
func (d *Driver) inspect(ctx context.Context, sql string, args []any, see func(state)) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	inner, done := life.Detached(ctx)
	defer done()
	if err := d.prepare(inner); err != nil {
		return err
	}
	return d.query(inner, sql, args, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		see(s)
		return err
	})
}

// Break implements [driver.Inspector]. A hold in a session loses its row at once, and its advisory lock as soon as its
// process hears of it.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return err
	}
	inner, cancel := life.Detached(ctx)
	defer cancel()
	if err := d.prepare(inner); err != nil {
		return err
	}
	found, err := d.change(inner, d.sql.breakHold, []any{name, int64(token), owner})
	if err == nil && !found {
		err = driver.ErrLost
	}
	return err
}
