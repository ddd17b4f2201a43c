package pglock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// An entry is one holder or waiter in the columns of these names. Times are microseconds of the
// server's clock.
type entry struct {
	Owner   string `json:"owner"`
	Nonce   string `json:"nonce"`             // of the attempt that made it, unique
	Channel string `json:"channel"`           // on which its process listens
	Shared  bool   `json:"shared"`            // on the read side
	Tell    bool   `json:"tell,omitempty"`    // the holder wants to know when another process waits
	Kept    bool   `json:"kept,omitempty"`    // released, but kept until MinHold has passed
	Session int32  `json:"session,omitempty"` // the key that its session holds

	Token  uint64 `json:"token,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	Since  int64  `json:"since,omitempty"`
	Until  int64  `json:"until,omitempty"`

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
}

func (e *entry) holder() driver.Holder {
	return driver.Holder{Host: e.Host, PID: e.PID, Label: e.Label}
}

// A state is a row at the time now, without the entries that had ended by then.
type state struct {
	name    string
	slots   int
	holders []entry
	waiters []entry
	now     int64
}

// scanState scans the columns of the SQL fragment row.
func scanState(rows pgx.Rows) (s state, err error) {
	var holders, waiters string
	if err := rows.Scan(&s.name, &s.slots, &holders, &waiters, &s.now); err != nil {
		return s, err
	}
	return s, s.parse(holders, waiters)
}

// readStates reads the rows of names by the statement read or heartbeat. The arguments after the
// names are args. Malformed rows are missing from the states; malformed has an error for each.
func (d *Driver) readStates(ctx context.Context, sql string, names []string, args ...any) (states map[string]state, malformed map[string]error, err error) {
	states, malformed = map[string]state{}, map[string]error{}
	err = driverkit.Isolate(names, isMalformed, func(some []string) error {
		found := map[string]state{} // if the statement fails, what it returned was rolled back
		err := d.query(ctx, sql, append([]any{some}, args...), func(rows pgx.Rows) error {
			s, err := scanState(rows)
			found[s.name] = s
			return err
		})
		if err == nil {
			maps.Copy(states, found)
		}
		return err
	}, func(name string, err error) { malformed[name] = d.rowError(name, err) })
	return states, malformed, err
}

func (s *state) parse(holders, waiters string) error {
	if err := json.Unmarshal([]byte(holders), &s.holders); err != nil {
		return parseError{fmt.Errorf("its holders can't be read: %w", err)}
	}
	if err := json.Unmarshal([]byte(waiters), &s.waiters); err != nil {
		return parseError{fmt.Errorf("its waiters can't be read: %w", err)}
	}
	return nil
}

// holderFor returns the entry by which req's owner holds the lock already, or nil.
func (s *state) holderFor(req driver.Request) *entry {
	for i, h := range s.holders {
		if h.Owner == req.Owner && h.Shared == req.Shared && !h.Kept && s.slots == req.Slots {
			return &s.holders[i]
		}
	}
	return nil
}

// hasHolder reports whether the lease with this nonce has not ended.
func (s *state) hasHolder(nonce string) bool {
	return slices.ContainsFunc(s.holders, func(h entry) bool { return h.Nonce == nonce && !h.Kept })
}

// refusal returns the reason why a request was not granted in this state.
func (s *state) refusal(req driver.Request) error {
	switch {
	case s.slots == req.Slots:
		return driver.ErrHeld
	case s.slots == 0:
		return fmt.Errorf("%w: the name is in use as a lock and not as a semaphore", driver.ErrKind)
	default:
		return fmt.Errorf("%w: the name is in use as a semaphore of %d slots", driver.ErrKind, s.slots)
	}
}

// position returns how many waiters are ahead of the one with this nonce, whether that one can be
// granted, and if not, after which delay the state may change by itself. place is -1 if the
// waiter is not in the queue any more.
func (s *state) position(nonce string) (place int, grantable bool, delay time.Duration) {
	ahead, exclusive := len(s.holders), false
	firstEnd := s.now + time.Hour.Microseconds()
	for _, h := range s.holders {
		exclusive = exclusive || !h.Shared
		firstEnd = min(firstEnd, h.Until)
	}
	for place, w := range s.waiters {
		if w.Nonce == nonce {
			grantable = ahead == 0 || w.Shared && !exclusive
			if s.slots > 0 {
				grantable = ahead < s.slots
			}
			return place, grantable, time.Duration(firstEnd-s.now) * time.Microsecond
		}
		ahead++
		exclusive = exclusive || !w.Shared
		firstEnd = min(firstEnd, w.Until)
	}
	return -1, false, 0
}

// othersWait reports whether a process waits that listens on another channel than this one.
func (s *state) othersWait(channel string) bool {
	return slices.ContainsFunc(s.waiters, func(w entry) bool { return w.Channel != channel })
}

// status describes the state for people. It reports at most maxLeft as the remaining time of a
// holder, because entries of sessions have no end of their own.
func (s *state) status(maxLeft time.Duration) driver.Status {
	st := driver.Status{Name: s.name}
	if len(s.holders)+len(s.waiters) > 0 {
		st.Slots = s.slots
	}
	if len(s.waiters) > 0 {
		st.Shared = s.waiters[0].Shared
	}
	between := func(from, to int64) time.Duration { return time.Duration(max(0, to-from)) * time.Microsecond }
	for _, h := range s.holders {
		st.Shared = h.Shared
		st.Holders = append(st.Holders, driver.Holding{
			Owner: h.Owner, Token: h.Token, Holder: h.holder(), Held: between(h.Since, s.now), Left: min(maxLeft, between(s.now, h.Until)),
		})
	}
	for _, w := range s.waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: w.Owner, Shared: w.Shared, Holder: w.holder(), Waited: between(w.Since, s.now),
		})
	}
	return st
}
