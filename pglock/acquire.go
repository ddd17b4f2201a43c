package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// request sends the request of an attempt.
func (d *Driver) request(ctx context.Context, a *attempt) (*lease, error) {
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if err := d.rows.Prepare(inner); err != nil {
		return nil, err
	}
	if a.Req.MinHold == 0 { // take may read the clock before it has locked the row, and MinHold counts from then
		if l, err := d.take(inner, a); l != nil || err != nil {
			return l, err
		}
	}
	start := driver.Now() // before the request: the lease must not seem to start later than it does
	s, created, err := d.send(inner, a)
	if err != nil {
		return nil, err
	}
	if h := s.HolderOf(a.Entry.Nonce); h != nil {
		if created {
			d.rows.NoteNewRow()
		}
		return a.Grant(*h, start, s.OthersWait(d.rows.ID)), nil
	}
	if place, _, delay := s.Position(a.Entry); place >= 0 {
		a.Wait(delay)
	}
	return nil, s.Refusal(a.Req)
}

// send sends the request as the full statement. created reports that the statement created the row.
func (d *Driver) send(ctx context.Context, a *attempt) (s state, created bool, err error) {
	req := a.Req
	encoded, err := d.encode(a)
	if err != nil {
		return s, false, err
	}
	args := []any{req.Name, a.Entry.Nonce, req.Slots, req.TTL.Microseconds(), req.Tokens, encoded,
		req.Shared, !req.NoWait}
	a.MarkSent()
	err = d.run(ctx, a.MarkRepeated, nil, d.sql.Acquire, args, func(row pgx.Rows) error {
		var holders, waiters string
		s = state{Name: req.Name}
		if err := row.Scan(&s.Slots, &holders, &waiters, &s.Now, &created, nil); err != nil {
			return err
		}
		return parse(&s, holders, waiters)
	})
	return s, created, d.rowError(req.Name, err)
}

// remove removes what an attempt has left in a row.
func (d *Driver) remove(ctx context.Context, name, nonce string) error {
	return d.query(ctx, d.sql.RemoveEntry, []any{name, nonce}, nil)
}
