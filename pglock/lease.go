package pglock

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

// release ends a lease in its row, or keeps it until MinHold has passed. A release whose answer
// was lost is sent again: nobody else has its id. If it then finds no lease, the first one has
// ended it.
func (d *Driver) release(ctx context.Context, l *lease) (freed bool, err error) {
	repeated := false
	err = d.whileFull(ctx, func() error {
		f := &freeing{name: l.Req.Name, id: l.ID()}
		if err := d.freeings.Do(ctx, f); err != nil {
			return err
		}
		if freed, repeated = f.freed, repeated || f.repeated; freed || f.err != nil {
			return f.err
		}
		return d.run(ctx, func() { repeated = true }, func() { freed = false }, d.sql.Release,
			[]any{l.Req.Name, l.ID()}, func(pgx.Rows) error { freed = true; return nil })
	})
	return freed || repeated && err == nil, d.rowError(l.Req.Name, err)
}

// whileFull calls fn until the server has a connection for it, or ctx is done.
func (d *Driver) whileFull(ctx context.Context, fn func() error) error {
	for outage := (driverkit.Outage{}); ; {
		sentAt := time.Now()
		err := fn()
		if !errors.Is(err, driver.ErrFull) {
			return err
		}
		pause, _ := outage.AgainWithin(driver.RetryTimeout, sentAt, err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// setHolder changes what a lease's row says of its holder.
func (d *Driver) setHolder(ctx context.Context, l *lease, to entry) (found bool, err error) {
	args := []any{l.Req.Name, l.ID(), to.Host, to.PID, to.Label, to.Kind.String()}
	err = d.run(ctx, func() {}, func() { found = false }, d.sql.SetHolder, args,
		func(pgx.Rows) error { found = true; return nil })
	return found, d.rowError(l.Req.Name, err)
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, due []driver.Lease) []driver.Renewal {
	answers := make([]driver.Renewal, len(due))
	if len(due) == 0 {
		return answers
	}
	if err := d.rows.Life.Ready(ctx); err != nil {
		return rows.FailAll(answers, err)
	}
	inner, cancel := driverkit.Detached(ctx)
	defer cancel()
	start := driver.Now()
	renewed, err := d.renewRows(inner, due)
	if err != nil {
		return rows.FailAll(answers, err)
	}
	for i, one := range due {
		l := one.(*lease)
		row := renewed[l.Req.Name]
		if row.err != nil && !l.HasEnded() {
			answers[i].Err = row.err
			continue
		}
		answers[i] = l.Renewed(slices.Contains(row.ids, l.ID()), start)
		if row.hasWaiters && answers[i].Err == nil {
			l.NotifyWanted()
		}
	}
	return answers
}

// A renewedRow is what a renewal has found in the row of one name.
type renewedRow struct {
	ids        []string // of the leases that are held
	hasWaiters bool
	err        error // the row is malformed, or locked by another transaction
}

// renewRows extends leases, and returns what it found in their rows, by name.
func (d *Driver) renewRows(ctx context.Context, due []driver.Lease) (map[string]renewedRow, error) {
	renewed, err := d.extendAll(urgent(ctx), unlocked(d.sql.Renew), due)
	if err != nil {
		return nil, err
	}
	skipped := map[string][]driver.Lease{}
	for _, one := range due {
		name := one.(*lease).Req.Name
		if _, found := renewed[name]; !found {
			skipped[name] = append(skipped[name], one)
		}
	}
	// The rows that were skipped come last, one by one: mostly, another client is just changing them,
	// but a transaction may keep one locked for long, and only the leases in that row may suffer.
	// These statements are not urgent, and limit their wait for the row themselves. After one that was
	// long, the other rows that there are wait for the next renewal: no lease is confirmed before the
	// last answer.
	var there map[string]*state // once a wait was long
	began := time.Now()
	for name, some := range skipped {
		if there == nil && time.Since(began) > rows.HeartbeatInterval/2 {
			there, err = d.read(urgent(ctx), slices.Collect(maps.Keys(skipped)))
		}
		if err != nil || there[name] != nil {
			renewed[name] = renewedRow{err: cmp.Or(err, context.Cause(ctx), errRowLocked)}
			continue
		}
		found, err := d.extendAll(ctx, all(d.sql.Renew), some)
		row := found[name] // zero if there is no such row
		row.err = cmp.Or(row.err, err)
		renewed[name] = row
	}
	return renewed, nil
}

// extendAll runs the statement renew, or one like it, for leases. A malformed row fails only its
// own renewal.
func (d *Driver) extendAll(ctx context.Context, sql string, all []driver.Lease) (map[string]renewedRow, error) {
	renewed := map[string]renewedRow{}
	err := driverkit.Isolate(all, isMalformed, func(some []driver.Lease) error {
		found, err := d.extend(ctx, sql, some)
		maps.Copy(renewed, found)
		return err
	}, func(one driver.Lease, err error) {
		name := one.(*lease).Req.Name
		renewed[name] = renewedRow{err: d.rowError(name, err)}
	})
	return renewed, err
}

// extend is extendAll if no row is malformed.
func (d *Driver) extend(ctx context.Context, sql string, some []driver.Lease) (map[string]renewedRow, error) {
	var names, ids []string
	var ttls []int64
	for _, one := range some {
		l := one.(*lease)
		names, ids = append(names, l.Req.Name), append(ids, l.ID())
		ttls = append(ttls, l.Req.TTL.Microseconds())
	}
	found := map[string]renewedRow{}
	err := d.run(ctx, func() {}, func() { clear(found) }, sql, []any{names, ids, ttls}, func(rows pgx.Rows) error {
		var name string
		var row renewedRow
		err := rows.Scan(&name, &row.ids, &row.hasWaiters)
		found[name] = row
		return err
	})
	if err != nil {
		return nil, err // what it found was rolled back
	}
	return found, nil
}
