package mysqllock

import (
	"cmp"
	"context"
	"slices"
	"time"

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

// Lease returns the lease with the given id on a lock, without a request to the server. Another
// process may have acquired it.
func (d *Driver) Lease(name, id string, ttl time.Duration) driver.Lease {
	return d.rows.Lease(name, id, ttl)
}

// release ends a lease in its row, or keeps it until MinHold has passed.
func (d *Driver) release(ctx context.Context, l *lease) (freed bool, err error) {
	leave, err := d.releasing.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
	err = d.change(urgent(ctx), l.Req.Name, func(s *state) (bool, error) {
		h := s.holder(l)
		if freed = h != nil || s.maybeWritten; h == nil { // a try without an answer has freed it
			return false, nil
		}
		h.Since = min(h.Since, s.Now) // the clock may have been set back since
		h.Until, h.Kept = h.Since+h.MinHold, true
		s.removeEnded(s.Now)
		s.signalFirst()
		return true, nil
	})
	return freed, err
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
	err := d.rows.Life.Ready(ctx)
	inner, cancel := driverkit.Detached(urgent(ctx))
	defer cancel()
	if err == nil {
		var leave func()
		if leave, err = d.renewing.enter(inner); err == nil {
			defer leave()
		}
	}
	var exclusive, others []renewal
	for i, one := range due {
		r := renewal{one.(*lease), &answers[i]}
		if isExclusive(r.Lease) {
			exclusive = append(exclusive, r)
		} else {
			others = append(others, r)
		}
	}
	answer := func(all []renewal, extend func(context.Context, []renewal) error) {
		slices.SortFunc(all, func(a, b renewal) int { return cmp.Compare(a.Req.Name, b.Req.Name) })
		for chunk := range slices.Chunk(all, maxNames) {
			if err == nil {
				err = extend(inner, chunk)
			}
			for _, r := range chunk {
				if err != nil {
					*r.answer = driver.Renewal{Err: err}
				}
			}
		}
	}
	answer(exclusive, d.extend)
	answer(others, d.extendEach)
	return answers
}

// A renewal is one lease of a call of Renew, and the place of its answer.
type renewal struct {
	*rows.Lease

	answer *driver.Renewal
}

// setAnswerFrom sets the answer by the row's state, which is nil if there is no row. The driver
// can't tell whether a lease in a malformed row is still held. It promises no more time than the
// row has: the statement may have met a server that was replaced, and extended nothing.
func (r renewal) setAnswerFrom(s *state, start driver.Instant) {
	if s != nil && s.Err != nil && !r.HasEnded() {
		r.answer.Err = s.Err
		return
	}
	var h *entry
	if s != nil {
		h = s.holder(r.Lease)
	}
	if h != nil {
		if confirmed := s.start.Add(rows.Between(s.Now, h.Until) - r.Req.TTL); confirmed.Before(start) {
			start = confirmed
		}
	}
	*r.answer = r.Renewed(h != nil, start)
}

// extend extends exclusive leases, with one statement if all are still held.
func (d *Driver) extend(ctx context.Context, all []renewal) error {
	var ttls, ids, named []any
	var names []string
	for _, r := range all {
		name := []byte(r.Req.Name)
		ttls = append(ttls, name, r.Req.TTL.Microseconds())
		ids = append(ids, name, []byte(r.ID()))
		named, names = append(named, name), append(names, r.Req.Name)
	}
	start := driver.Now()
	res, err := d.exec(ctx, forNames(d.sql.Renew, len(all)),
		slices.Concat([]any{newVersion()}, ttls, ttls, named, ids)...)
	if err != nil {
		return err
	}
	if int(res.rows) == len(all) {
		for _, r := range all {
			*r.answer = r.Renewed(true, start)
		}
		return nil
	}
	// Some are lost, or the server has set read_only.
	found, err := d.read(ctx, names)
	if err != nil {
		return err
	}
	for _, r := range all {
		r.setAnswerFrom(found[r.Req.Name], start)
	}
	return nil
}

// extendEach extends leases that may not be exclusive.
func (d *Driver) extendEach(ctx context.Context, all []renewal) error {
	for _, r := range all {
		held := false
		var last *state
		err := d.change(ctx, r.Req.Name, func(s *state) (bool, error) {
			h := s.holder(r.Lease)
			if held, last = h != nil, s; held {
				extend(h, s.latest, r.Req.TTL.Microseconds())
			}
			return held, nil
		})
		if isMalformed(err) {
			r.answer.Err = err
			continue
		}
		if err != nil {
			return err
		}
		*r.answer = r.Renewed(held, last.start)
	}
	return nil
}
