package mysqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// isExclusive reports whether the row is known to store the lease in the columns of an exclusive
// holder. Of a lease that another process has acquired, the driver does not know that.
func isExclusive(l *lease) bool {
	return !l.Req.Shared && l.Req.Slots == 0 && l.Grant().Token != 0
}

// holder returns the entry of a lease in the row, or nil. A row that was recalled still has holders
// that may just have ended: they keep others out, and hold nothing.
func (s *state) holder(l *lease) *entry {
	i := slices.IndexFunc(s.Holders, func(h entry) bool {
		return h.ID == l.ID() && !h.Kept && h.Until > s.Now
	})
	if i < 0 {
		return nil
	}
	return &s.Holders[i]
}

// release ends a lease in its row, or keeps it until MinHold has passed.
func (d *Driver) release(ctx context.Context, l *lease) (freed bool, err error) {
	ctx, leave, err := d.releasing.admit(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	err = d.change(ctx, l.Req.Name, func(s *state) (bool, error) {
		h := s.holder(l)
		if freed = h != nil || s.maybeWritten; h == nil { // a try without an answer has freed it
			return false, nil
		}
		s.release(h)
		return true, nil
	})
	return freed, err
}

// release ends a hold, or keeps it until it has lasted its MinHold. If the server's clock was set
// back since the grant, MinHold counts from now. Other holders stay, even those that may be over:
// see recall.
func (s *state) release(h *entry) {
	h.Since = min(h.Since, s.latest)
	h.Until, h.Kept = h.Since+h.MinHold, true
	if h.MinHold == 0 || h.Until <= s.Now {
		s.remove(h.Nonce)
	}
	s.signalFirst()
}

// setHolder changes what a lease's row says of its holder.
func (d *Driver) setHolder(ctx context.Context, l *lease, to entry) (found bool, err error) {
	err = d.change(ctx, l.Req.Name, func(s *state) (bool, error) {
		h := s.holder(l)
		if found = h != nil; found {
			h.Host, h.PID, h.Label, h.Kind = to.Host, to.PID, to.Label, to.Kind
		}
		return found, nil
	})
	return found, err
}

// Renew implements [driver.Driver]. Up to 256 exclusive leases take one statement together. Other
// leases take two statements each.
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if err := d.renewAll(ctx, due, answers); err != nil {
		for i := range answers {
			if answers[i] == (driver.Renewal{}) {
				answers[i].Err = err
			}
		}
	}
	return answers
}

// renewAll sets the answers until an error ends it. Leases whose rows are locked come last, one by
// one: a transaction may keep a row locked for long, and only the lease in that row may suffer.
func (d *Driver) renewAll(ctx context.Context, due []driver.Lease, answers []driver.Renewal) error {
	if err := d.rows.Life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := driverkit.Detached(ctx)
	defer cancel()
	ctx, leave, err := d.renewing.admit(ctx)
	if err != nil {
		return err
	}
	defer leave()
	batches := batchesOf(due, answers)
	for seconds := range 2 { // that a statement waits for a locked row
		var locked [][]renewal
		for _, batch := range batches {
			if err := d.extend(limitLockWait(ctx, seconds), batch); err != nil {
				return err
			}
			for _, r := range batch {
				if code(r.answer.Err) == lockWaitTimeout {
					locked = append(locked, []renewal{r})
				}
			}
		}
		batches = locked
	}
	return nil
}

// batchesOf returns the leases that are extended together. Those that may not be exclusive are
// alone.
func batchesOf(due []driver.Lease, answers []driver.Renewal) [][]renewal {
	var exclusive []renewal
	var others [][]renewal
	for i, one := range due {
		r := renewal{one.(*lease), &answers[i]}
		if isExclusive(r.Lease) {
			exclusive = append(exclusive, r)
		} else {
			others = append(others, []renewal{r})
		}
	}
	slices.SortFunc(exclusive, func(a, b renewal) int { return cmp.Compare(a.Req.Name, b.Req.Name) })
	return append(slices.Collect(slices.Chunk(exclusive, maxNames)), others...)
}

// A renewal is one lease of a call of Renew, and the place of its answer.
type renewal struct {
	*rows.Lease

	answer *driver.Renewal
}

// extend extends the leases of a batch, and sets their answers. If a lease is lost, or its row is
// locked, it tries the halves of the batch. It returns an error that ends the call of Renew.
func (d *Driver) extend(ctx context.Context, batch []renewal) error {
	done, err := false, error(nil)
	if isExclusive(batch[0].Lease) {
		done, err = d.extendTogether(ctx, batch)
	}
	half := len(batch) / 2
	switch {
	case half > 0 && (err == nil && !done || code(err) == lockWaitTimeout):
		if err := d.extend(ctx, batch[:half]); err != nil {
			return err
		}
		return d.extend(ctx, batch[half:])
	case err == nil && !done:
		err = d.extendOne(ctx, batch[0])
	}
	if code(err) == lockWaitTimeout || isMalformed(err) {
		batch[0].answer.Err = err
		return nil
	}
	return err
}

// extendTogether extends exclusive leases by one statement. It reports whether all were still held.
func (d *Driver) extendTogether(ctx context.Context, batch []renewal) (done bool, err error) {
	var ttls, ids, names []any
	for _, r := range batch {
		name := []byte(r.Req.Name)
		ttls = append(ttls, name, r.Req.TTL.Microseconds())
		ids = append(ids, name, []byte(r.ID()))
		names = append(names, name)
	}
	start := driver.Now()
	res, err := d.exec(ctx, forNames(d.sql.Renew, len(batch)),
		slices.Concat(ttls, ttls, names, ids)...)
	if err != nil || int(res.rows) < len(batch) {
		return false, err
	}
	for _, r := range batch {
		*r.answer = r.Renewed(true, start)
	}
	return true, nil
}

// extendOne extends a lease that may not be exclusive, or not be held any more.
func (d *Driver) extendOne(ctx context.Context, r renewal) error {
	held := false
	var last *state
	err := d.change(ctx, r.Req.Name, func(s *state) (bool, error) {
		h := s.holder(r.Lease)
		if held, last = h != nil, s; held {
			extend(h, s.latest, r.Req.TTL.Microseconds())
		}
		return held, nil
	})
	if err == nil {
		*r.answer = r.Renewed(held, last.start)
	}
	return err
}
