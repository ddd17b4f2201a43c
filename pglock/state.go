package pglock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
	"github.com/sniblock/snib/driver/driverkit/rows"
)

type (
	state   = rows.State
	entry   = rows.Entry
	lease   = rows.Lease
	attempt = rows.Attempt
)

// A newEntry is an entry of the columns holders and waiters as an attempt writes it.
type newEntry struct {
	entry

	Channel string `json:"channel"` // on which its process listens
}

// scanState scans the columns of the SQL fragment row.
func scanState(row pgx.Rows) (*state, error) {
	var s state
	var holders, waiters string
	if err := row.Scan(&s.Name, &s.Slots, &holders, &waiters, &s.Now); err != nil {
		return &s, err
	}
	return &s, parse(&s, holders, waiters)
}

// read reads the rows of names.
func (d *Driver) read(ctx context.Context, names []string) (map[string]*state, error) {
	return d.readStates(ctx, d.sql.Read, names)
}

// errRowLocked is the error of a row that another transaction, such as one that called
// [Driver.IsOwner], keeps locked.
var errRowLocked = fmt.Errorf("%w: another transaction has locked the row", driver.ErrUnavailable)

// poll reads the rows of names. If a heartbeat is due, it lets the waiters with these nonces count
// for longer.
func (d *Driver) poll(ctx context.Context, names, nonces []string,
	heartbeat bool) (states map[string]*state, err error) {
	ctx = urgent(ctx)
	if time.Since(d.lockedAt) > rows.HeartbeatTimeout { // that heartbeat was for earlier waiters
		clear(d.locked)
	}
	if heartbeat {
		states, err = d.sendHeartbeat(ctx, names, nonces)
	} else {
		states, err = d.read(ctx, names)
	}
	for name := range d.locked {
		states[name] = &state{Name: name, Err: errRowLocked}
	}
	return states, err
}

// sendHeartbeat sends a heartbeat for the waiters with these nonces, and reads the rows of names.
// The first statement skips locked rows, so that they delay no heartbeat for other rows. The second
// one waits for those that were not locked at the last heartbeat: mostly, another client is just
// changing them.
func (d *Driver) sendHeartbeat(ctx context.Context, names, nonces []string) (map[string]*state, error) {
	before := d.locked
	d.locked = map[string]bool{}
	send := func(ctx context.Context, sql string, names []string) (map[string]*state, error) {
		return d.readStates(ctx, sql, names, nonces)
	}
	states, err := send(ctx, unlocked(d.sql.Heartbeat), names)
	if err != nil || len(states) == len(names) {
		return states, err
	}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return states[name] != nil })
	}
	busy := slices.DeleteFunc(missing(), func(name string) bool { return before[name] })
	if len(busy) > 0 {
		short, cancel := context.WithTimeoutCause(ctx, rows.HeartbeatInterval, errRowLocked)
		defer cancel()
		found, err := send(short, all(d.sql.Heartbeat), busy)
		if errors.Is(err, errRowLocked) { // one of them, which has held up the others
			found, err = send(ctx, unlocked(d.sql.Heartbeat), busy)
		}
		if err != nil {
			return states, err
		}
		maps.Copy(states, found)
	}
	rest := missing()
	if len(rest) == 0 {
		return states, nil
	}
	found, err := d.read(ctx, rest)
	for name := range found { // the others do not exist
		d.locked[name] = true
	}
	d.lockedAt = time.Now()
	return states, err
}

// readStates reads the rows of names by the statement read or heartbeat. The arguments after the
// names are args.
func (d *Driver) readStates(ctx context.Context, sql string, names []string, args ...any) (map[string]*state, error) {
	states := map[string]*state{}
	err := driverkit.Isolate(names, isMalformed, func(some []string) error {
		found := map[string]*state{}
		err := d.run(ctx, func() {}, func() { clear(found) }, sql, append([]any{some}, args...), func(row pgx.Rows) error {
			s, err := scanState(row)
			found[s.Name] = s
			return err
		})
		if err == nil {
			maps.Copy(states, found)
		}
		return err
	}, func(name string, err error) { states[name] = &state{Name: name, Err: d.rowError(name, err)} })
	return states, err
}

func parse(s *state, holders, waiters string) (err error) {
	if s.Holders, err = parseEntries("holders", holders); err == nil {
		s.Waiters, err = parseEntries("waiters", waiters)
	}
	return err
}

// parseEntries parses a column.
func parseEntries(column, text string) (all []entry, err error) {
	if text == "[]" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, parseError{fmt.Errorf("its %s can't be read: %w", column, err)}
	}
	return all, nil
}
