package pglock

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// request sends the request of an attempt.
func (d *Driver) request(ctx context.Context, a *attempt) (*lease, error) {
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	if err := d.prepare(inner); err != nil {
		return nil, d.yieldSession(err)
	}
	start := driver.Now() // before the request: the lease must not seem to start later than it does
	s, created, err := d.send(inner, a)
	if err != nil {
		return nil, d.yieldSession(err)
	}
	if h := s.HolderFor(a.Req); h != nil {
		if created {
			d.rows.CountNewRow()
		}
		return a.Grant(*h, start, s.OthersWait(d.rows.ID)), nil
	}
	if place, _, delay := s.Position(a.Entry.Nonce, false); place >= 0 {
		a.Wait(delay)
	}
	return nil, s.Refusal(a.Req)
}

// yieldSession returns err. If the pool got no connection because the server has none left, it
// first ends a session that nobody uses: processes that have one connection each and need two
// would otherwise wait for one another.
func (d *Driver) yieldSession(err error) error {
	if errors.Is(err, driver.ErrFull) {
		d.rows.YieldSession(err)
	}
	return err
}

// send sends the request, first as acquireFast and, if that returns nothing, as the full
// statement. created reports that the statement created the row.
func (d *Driver) send(ctx context.Context, a *attempt) (s state, created bool, err error) {
	req := a.Req
	a.Entry.Tell = a.Entry.Tell || d.rows.HasSession()
	encoded, err := json.Marshal(newEntry{a.Entry, d.channel(), json.Number(a.Entry.Session)})
	if err != nil {
		return s, false, err
	}
	args := []any{req.Name, a.Entry.Nonce, req.Slots, d.rows.RowTTL(req), req.Tokens, string(encoded),
		req.Owner, req.Shared, !req.NoWait, rows.HeartbeatTimeout.Microseconds(), a.Removing()}
	answered := false
	scan := func(row pgx.Rows) error {
		var holders, waiters string
		answered = true
		s = state{Name: req.Name}
		if err := row.Scan(&s.Slots, &holders, &waiters, &s.Now, &created, nil); err != nil {
			return err
		}
		return parse(&s, holders, waiters)
	}
	a.MarkSent()
	err = d.run(ctx, a.MarkRepeated, d.sql.acquireFast, args[:6], scan)
	if err != nil || answered {
		return s, created, d.rowError(req.Name, err)
	}
	sql := d.sql.acquire
	if req.NoWait || a.Queued {
		sql = d.sql.acquirePrechecked
	}
	return s, created, d.rowError(req.Name, d.run(ctx, a.MarkRepeated, sql, args, scan))
}

// remove removes what an attempt has left in a row.
func (d *Driver) remove(ctx context.Context, name, nonce string) error {
	return d.query(ctx, d.sql.removeEntry, []any{name, nonce}, nil)
}
