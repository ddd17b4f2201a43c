package mysqllock

import (
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/life"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	err := d.inspect(ctx, func(ctx context.Context) error {
		found, err := d.read(ctx, []string{name})
		if err == nil {
			st = found[name].status(d.left())
		}
		return err
	})
	return st, err
}

// List implements [driver.Inspector]. It reads one page after the other, so that a slow yield holds nobody up; what
// changes in the meantime is seen or not.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	after, last := []byte("\x00\xff"), []byte(prefix+"\xff") // no name has this byte; rows of processes come before
	if prefix != "" {
		after = []byte(prefix)
		after[len(after)-1]-- // the prefix itself comes after it, with the byte that is in no name
		after = append(after, '\xff')
	}
	for {
		var page []*state
		err := d.inspect(ctx, func(ctx context.Context) (err error) {
			page, err = d.page(ctx, after, last)
			return err
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, s := range page {
			st := s.status(d.left())
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
			after = []byte(s.name)
		}
	}
}

// page reads the next rows after a name, up to another, in which somebody may be.
func (d *Driver) page(ctx context.Context, after, last []byte) ([]*state, error) {
	var page []*state
	states := map[string]*state{}
	err := d.query(ctx, d.sql.list, []any{after, last}, func(rows *sql.Rows) error {
		s, err := scan(rows)
		page = append(page, &s)
		states[s.name] = &s
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, d.bury(ctx, states)
}

// left is how long a hold lasts at most, and at least in a session, which pings after a third of its timeout.
func (d *Driver) left() time.Duration {
	if d.session != nil {
		return d.conf.idle * 2 / 3
	}
	return math.MaxInt64
}

// inspect runs what answers people's questions.
func (d *Driver) inspect(ctx context.Context, fn func(context.Context) error) error {
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
	return fn(inner)
}

// Break implements [driver.Inspector]. A hold in a session loses its row at once, and what GET_LOCK has given it when its
// process next pings, after a third of [Timeout] at the latest.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	return d.inspect(ctx, func(ctx context.Context) error {
		return d.change(ctx, name, func(s *state) (bool, error) {
			h := s.by(token)
			if h == nil || h.Owner != owner {
				return false, driver.ErrLost
			}
			s.drop(token)
			s.call()
			return true, nil
		})
	})
}
