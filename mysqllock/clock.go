package mysqllock

import (
	"context"
	"slices"
	"time"

	"github.com/sniblock/snib/driver/driverkit/rows"
)

// Entries end by the server's clock. If that clock is set back, what a dead process has left in
// the table would last longer by as much. So whoever reads an entry with more time left than any
// request gives it lets it end as if it had been renewed just now: its holder relies on no more.

// clockTolerance is how much more time an entry may have left because the clocks of the server and
// of this host do not run at quite the same rate.
const clockTolerance = time.Second

// capEnds gives holds that end too late an earlier end. latest is the server's time when the row
// was read, or later. The server's clock was the same or earlier when the row was written, unless
// it was set back since.
func (s *state) capEnds(latest int64) {
	for i := range s.Holders {
		h := &s.Holders[i]
		life := rows.Between(0, h.TTL) // how long it counts if it is not renewed, or 0 if its row does not say
		if h.Kept {
			life = rows.Between(0, h.MinHold)
		}
		if life > 0 && rows.Between(latest, h.Until) > life+clockTolerance {
			h.Until, s.capped = latest+life.Microseconds(), true
		}
	}
}

// writeCapped writes the new ends of the states that have some.
func (d *Driver) writeCapped(found map[string]*state) {
	for name, s := range found {
		if s.capped {
			d.rows.Life.Go(func() { // one row that is locked must not hold up the heartbeats
				ctx, cancel := context.WithTimeout(d.rows.Life.Context(), rows.HeartbeatTimeout)
				defer cancel()
				// If this fails, the next poll tries again.
				_ = d.change(ctx, name, func(*state) (bool, error) { return false, nil })
			})
		}
	}
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

// capProcesses lets the late processes that wait in s count for rows.HeartbeatTimeout from now.
func (d *Driver) capProcesses(ctx context.Context, s *state) error {
	for chunk := range slices.Chunk(d.processes.late(s), maxNames) {
		timeout := rows.HeartbeatTimeout.Microseconds()
		args := append([]any{timeout, timeout}, nameArgs(chunk)...)
		if _, err := d.exec(ctx, forNames(d.sql.CapProcesses, len(chunk)), args...); err != nil {
			return err
		}
	}
	return nil
}

// late returns the names of the rows of late processes that wait in s.
func (w *processes) late(s *state) []string {
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
