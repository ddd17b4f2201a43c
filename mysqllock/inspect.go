package mysqllock

import (
	"context"
	"database/sql"
	"slices"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

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
		if len(s.Holders) == before && !s.maybeWritten { // else a try without an answer has ended it
			return false, driver.ErrLost
		}
		s.signalFirst()
		return true, nil
	})
}
