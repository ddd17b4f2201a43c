package pglock

import (
	"cmp"
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
	err := d.inspect(ctx, func(ctx context.Context) error {
		states, malformed, err := d.readStates(ctx, d.sql.read, []string{name})
		if s, found := states[name]; found {
			st = s.status(d.maxLeft())
		}
		return cmp.Or(err, malformed[name])
	})
	return st, err
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks nobody.
// It may or may not see changes that are made meanwhile. If some rows are malformed, List lists
// all others and then returns a [driverkit.RowError] for the first of those.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	// No name with the prefix is greater.
	last := prefix + strings.Repeat("\U0010ffff", driver.MaxName/4)
	var firstMalformed error
	for from := prefix; ; {
		var p page
		err := d.inspect(ctx, func(ctx context.Context) (err error) {
			p, err = d.readPage(ctx, prefix, from, last)
			return err
		})
		if err != nil || len(p.names) == 0 {
			return cmp.Or(err, firstMalformed)
		}
		for _, name := range p.names {
			s, found := p.states[name]
			if !found {
				firstMalformed = cmp.Or(firstMalformed, p.malformed[name])
				continue
			}
			st := s.status(d.maxLeft())
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
		}
		from = p.names[len(p.names)-1] + "\x01" // no name lies between them: names have no NUL
	}
}

// A page is what [Driver.List] reads at once.
type page struct {
	names     []string // in their order
	states    map[string]state
	malformed map[string]error // of malformed rows
}

// readPage reads the first 100 rows that may have holders or waiters, whose names begin with
// prefix and lie between from and last.
func (d *Driver) readPage(ctx context.Context, prefix, from, last string) (p page, err error) {
	args := []any{prefix, from, last}
	p.states = map[string]state{}
	err = d.query(ctx, d.sql.list, args, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		p.names = append(p.names, s.name)
		p.states[s.name] = s
		return err
	})
	if !isMalformed(err) {
		return p, err
	}
	p.names = nil
	err = d.query(ctx, d.sql.listNames, args, func(rows pgx.Rows) error {
		var name string
		err := rows.Scan(&name)
		p.names = append(p.names, name)
		return err
	})
	if err == nil {
		p.states, p.malformed, err = d.readStates(ctx, d.sql.read, p.names)
	}
	return p, err
}

// maxLeft is the longest remaining time that is reported of a lease. In a session it is what
// every lease has left at least: the session pings after a third of its timeout.
func (d *Driver) maxLeft() time.Duration {
	if d.session != nil {
		return d.conf.sessionTimeout * 2 / 3
	}
	return math.MaxInt64
}

// inspect runs fn, which only reads.
func (d *Driver) inspect(ctx context.Context, fn func(context.Context) error) error {
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
	return fn(inner)
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
	return d.rowError(name, err)
}
