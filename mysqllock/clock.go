package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// Entries end by the server's clock. If that clock is set back, what a dead process has left in
// the table would last longer by as much. Two things prevent that:
//
//   - Processes that poll measure with their own clocks how long an entry has been unchanged: see
//     expireUnchanged and processRow.
//   - A request that is refused writes a new end into an entry that ends too late: see capEnds. So
//     requests that don't wait get the lock too.

// An observation identifies a hold as it is stored in its row. Each renewal changes until.
type observation struct {
	name  string
	token uint64
	until int64
}

// observe records the holds in states, and since when they have been unchanged. It forgets all
// others.
func (w *processes) observe(states map[string]*state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.observations, time.Now() // after the answer, so after the last renewal
	w.observations = map[observation]time.Time{}
	for name, s := range states {
		for _, h := range slices.Concat(s.Holders, s.unchanged) {
			one := observation{name, h.Token, h.Until}
			if w.observations[one] = before[one]; w.observations[one].IsZero() {
				w.observations[one] = now
			}
		}
	}
}

// expireUnchanged removes from s the holds that were not renewed for their whole TTL by our own
// clock. They are still in the row because the server's clock was set back. If the holder renews
// the hold after all, the row's version changes, and the write that takes the lock fails. The
// caller must hold w.mu.
func (w *processes) expireUnchanged(s *state) {
	s.Holders = slices.DeleteFunc(s.Holders, func(h entry) bool {
		since, seen := w.observations[observation{s.Name, h.Token, h.Until}]
		expired := seen && lifetime(&h) > 0 && time.Since(since) > lifetime(&h)+rows.HeartbeatInterval
		if expired {
			s.unchanged = append(s.unchanged, h)
		}
		return expired
	})
}

// lifetime is how long a hold counts if it is not renewed, or 0 if its row does not say.
func lifetime(e *entry) time.Duration {
	if e.Kept {
		return rows.Between(e.Since, e.Until)
	}
	return rows.Between(0, e.TTL)
}

// A processRow is what the driver knows of another process. Each heartbeat changes ends.
type processRow struct {
	ends  int64     // how long the process counts, by the server's clock
	since time.Time // since when ends has been the same, by our own clock
}

// isLive reports whether the process counts at the server's time now. A process whose row was
// unchanged for longer than a heartbeat counts is dead: the server's clock was set back.
func (p processRow) isLive(now int64) bool {
	return p.ends > now && time.Since(p.since) < rows.HeartbeatTimeout+rows.HeartbeatInterval
}

// isLate reports whether the process counts for longer at the server's time now than any
// heartbeat makes it count: the server's clock was set back.
func (p processRow) isLate(now int64) bool {
	return p.ends > now+(rows.HeartbeatTimeout+rows.HeartbeatInterval).Microseconds()
}

// isLate reports whether the hold h has more than its whole lifetime left: the server's clock was
// set back after h was granted, renewed or kept.
func (s *state) isLate(h *entry) bool {
	return lifetime(h) > 0 && h.Until > s.Now+lifetime(h).Microseconds()
}

// capEnds writes a new end into what is late in the row: a hold then ends one lifetime from now,
// and a process counts for rows.HeartbeatTimeout from now. The caller must have locked the mutex of
// the name.
//
// capEnds changes only holds that an earlier read, seen, has found: they were renewed before now,
// so their holders rely on no more than one lifetime from now. The time of a single read may be
// older than the row that it returns.
func (d *Driver) capEnds(ctx context.Context, seen *state) error {
	if names := d.processes.lateProcesses(seen); len(names) > 0 {
		for chunk := range slices.Chunk(names, maxNames) {
			timeout := rows.HeartbeatTimeout.Microseconds()
			args := append([]any{timeout, timeout}, nameArgs(chunk)...)
			if _, err := d.exec(ctx, forNames(d.sql.CapProcesses, len(chunk)), args...); err != nil {
				return err
			}
		}
	}
	if !slices.ContainsFunc(seen.Holders, func(h entry) bool { return seen.isLate(&h) }) {
		return nil
	}
	return d.changeLocked(ctx, seen.Name, func(s *state) (write bool, err error) {
		for i := range s.Holders {
			h := &s.Holders[i]
			known := slices.ContainsFunc(seen.Holders, func(o entry) bool { return o.Token == h.Token && o.Until == h.Until })
			if !known || !s.isLate(h) {
				continue
			}
			h.Until, write = s.Now+lifetime(h).Microseconds(), true
			if h.Kept {
				h.Since = s.Now // so that its lifetime stays the same
			}
		}
		return write, nil
	})
}

// lateProcesses returns the names of the rows of late processes that wait in s.
func (w *processes) lateProcesses(s *state) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, e := range s.Waiters {
		name := processPrefix + e.Process()
		if w.others[e.Process()].isLate(s.Now) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
