package mysqllock

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
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
func (d *Driver) readPage(ctx context.Context, prefix, after string) (page []*rows.State, err error) {
	// No name has the byte 0xff. The first bound skips the rows of processes and of Tx.
	from, last := []byte("\x00\xff"), []byte(prefix+"\xff")
	switch {
	case after != "":
		from = []byte(after)
	case prefix != "":
		from = []byte(prefix)
		// The prefix itself sorts after this, because no name has the byte that is appended.
		from[len(from)-1]--
		from = append(from, '\xff')
	}
	states := map[string]*state{}
	err = d.query(ctx, d.sql.List, []any{from, last}, func(row *sql.Rows) error {
		s, err := d.scanState(row)
		page = append(page, &s.State)
		states[s.Name] = &s
		return err
	})
	if err != nil {
		return nil, err
	}
	return page, d.reapDead(ctx, states)
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
	return d.change(ctx, name, func(s *state) (bool, error) {
		s.reap(func(w entry) bool { return w.ID == id })
		s.signalFirst()
		return s.reaped, nil
	})
}

// breakLease ends a lease by force, also one that was released and that MinHold keeps.
func (d *Driver) breakLease(ctx context.Context, name, id string) error {
	return d.change(ctx, name, func(s *state) (bool, error) {
		before := len(s.Holders)
		s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool { return h.ID == id })
		if len(s.Holders) == before {
			return false, driver.ErrLost
		}
		s.signalFirst()
		return true, nil
	})
}
