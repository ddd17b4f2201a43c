package pglock

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/driver"
)

// An entry is one holder or waiter in the columns of that name. Times are microseconds of the server's clock.
type entry struct {
	Owner   string `json:"owner"`
	Nonce   string `json:"nonce"`             // of the attempt that made it, unique
	Channel string `json:"channel"`           // where its process listens
	Shared  bool   `json:"shared"`            // on the read side
	Tell    bool   `json:"tell,omitempty"`    // the holder wants to know when another process waits
	Kept    bool   `json:"kept,omitempty"`    // released, and kept until MinHold is over
	Session int32  `json:"session,omitempty"` // the key that its session has locked

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

// A state is a row as of now, without what had ended by then.
type state struct {
	name    string
	slots   int
	holders []entry
	waiters []entry
	now     int64
}

// scanState reads what the statements call row.
func scanState(rows pgx.Rows) (s state, err error) {
	var holders, waiters string
	if err := rows.Scan(&s.name, &s.slots, &holders, &waiters, &s.now); err != nil {
		return s, err
	}
	return s, s.parse(holders, waiters)
}

func (s *state) parse(holders, waiters string) error {
	if err := json.Unmarshal([]byte(holders), &s.holders); err != nil {
		return fmt.Errorf("%w row of %q: its holders can't be read: %w", driver.ErrInvalid, s.name, err)
	}
	if err := json.Unmarshal([]byte(waiters), &s.waiters); err != nil {
		return fmt.Errorf("%w row of %q: its waiters can't be read: %w", driver.ErrInvalid, s.name, err)
	}
	return nil
}

// held returns the hold that req's owner has, or nil.
func (s *state) held(req driver.Request) *entry {
	for i, h := range s.holders {
		if h.Owner == req.Owner && h.Shared == req.Shared && !h.Kept && s.slots == req.Slots {
			return &s.holders[i]
		}
	}
	return nil
}

// holds reports whether the hold with this nonce has not ended.
func (s *state) holds(nonce string) bool {
	return slices.ContainsFunc(s.holders, func(h entry) bool { return h.Nonce == nonce && !h.Kept })
}

// refusal says why a request was not granted in this state.
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

// turn reports how many are before the waiter with this nonce, whether it can be granted, and if
// not, when that may change by itself. place is -1 if it was given up for dead.
func (s *state) turn(nonce string) (place int, granted bool, sleep time.Duration) {
	busy, alone := len(s.holders), false
	end := s.now + time.Hour.Microseconds()
	for _, h := range s.holders {
		alone = alone || !h.Shared
		end = min(end, h.Until)
	}
	for place, w := range s.waiters {
		if w.Nonce == nonce {
			granted = busy == 0 || w.Shared && !alone
			if s.slots > 0 {
				granted = busy < s.slots
			}
			return place, granted, time.Duration(end-s.now) * time.Microsecond
		}
		busy++
		alone = alone || !w.Shared
		end = min(end, w.Until)
	}
	return -1, false, 0
}

// strangers reports whether another process waits than the one that listens on a channel.
func (s *state) strangers(channel string) bool {
	return slices.ContainsFunc(s.waiters, func(w entry) bool { return w.Channel != channel })
}

// status describes the state to people. Where holds have no end of their own, most is how long they last without a sign of
// life.
func (s *state) status(most time.Duration) driver.Status {
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
			Owner: h.Owner, Token: h.Token, Holder: h.holder(), Held: between(h.Since, s.now), Left: min(most, between(s.now, h.Until)),
		})
	}
	for _, w := range s.waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: w.Owner, Shared: w.Shared, Holder: w.holder(), Waited: between(w.Since, s.now),
		})
	}
	return st
}
