package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Status implements [driver.Inspector].
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	st := driver.Status{Name: name}
	err := d.inspect(ctx, func(ctx context.Context) error {
		found, err := d.read(ctx, []string{name})
		if err != nil {
			return err
		}
		st = found[name].status(d.maxLeft())
		return found[name].malformed
	})
	return st, err
}

// List implements [driver.Inspector]. It reads page by page, so that a slow yield blocks nobody.
// It may or may not see changes that are made meanwhile. If some rows are malformed, List lists
// all others and then returns a [driverkit.RowError] for the first of those.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	// No name has the byte 0xff. The first bound skips the rows of processes and of Tx.
	after, last := []byte("\x00\xff"), []byte(prefix+"\xff")
	if prefix != "" {
		after = []byte(prefix)
		// The prefix itself sorts after this, because no name has the byte that is appended.
		after[len(after)-1]--
		after = append(after, '\xff')
	}
	var firstMalformed error
	for {
		var page []*state
		err := d.inspect(ctx, func(ctx context.Context) (err error) {
			page, err = d.readPage(ctx, after, last)
			return err
		})
		if err != nil || len(page) == 0 {
			return cmp.Or(err, firstMalformed)
		}
		for _, s := range page {
			st := s.status(d.maxLeft())
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
			firstMalformed = cmp.Or(firstMalformed, s.malformed)
			after = []byte(s.name)
		}
	}
}

// readPage reads the next rows between two names that may have holders or waiters.
func (d *Driver) readPage(ctx context.Context, after, last []byte) ([]*state, error) {
	var page []*state
	states := map[string]*state{}
	err := d.query(ctx, d.sql.list, []any{after, last}, func(rows *sql.Rows) error {
		s, err := d.scanState(rows)
		page = append(page, &s)
		states[s.name] = &s
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, d.reapDead(ctx, states)
}

// maxLeft is the longest remaining time that is reported of a lease. In a session it is what
// every lease has left at least: the session pings after a third of its timeout.
func (d *Driver) maxLeft() time.Duration {
	if d.session != nil {
		return d.conf.sessionTimeout * 2 / 3
	}
	return math.MaxInt64
}

// inspect runs fn, which answers a question about the store.
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
// lock of GET_LOCK when its process next pings, which is after a third of [Timeout] at the
// latest.
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	return d.inspect(ctx, func(ctx context.Context) error {
		return d.change(ctx, name, func(s *state) (bool, error) {
			h := s.holderByToken(token)
			if h == nil || h.Owner != owner {
				return false, driver.ErrLost
			}
			s.removeHolder(token)
			s.signalFirst()
			return true, nil
		})
	})
}
