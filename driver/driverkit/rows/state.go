package rows

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Entry is one holder or waiter in a row. Times are microseconds of the server's clock.
type Entry struct {
	ID     string `json:"id"`
	Nonce  string `json:"nonce,omitempty"` // of the attempt that made it, unique
	Shared bool   `json:"shared"`          // on the read side
	Slots  int    `json:"slots,omitempty"` // of the request, if the lock is a semaphore
	Tell   bool   `json:"tell,omitempty"`  // the holder wants to know when another process waits
	Kept   bool   `json:"kept,omitempty"`  // released, but kept until MinHold has passed

	Token  uint64 `json:"token,omitempty"`
	Tokens int    `json:"tokens,omitempty"`
	TTL    int64  `json:"ttl,omitempty"`

	MinHold int64 `json:"min_hold,omitempty"` // of the request

	Since int64 `json:"since,omitempty"`
	Until int64 `json:"until,omitempty"` // 0 if the entry has no end of its own

	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`

	Kind driver.HolderKind `json:"kind,omitempty"`
}

// newEntry returns the entry of a request.
func newEntry(req driver.Request, nonce string) Entry {
	h := req.Holder
	return Entry{
		ID: req.ID, Nonce: nonce, Shared: req.Shared, Slots: req.Slots, Tell: req.Tokens > 1,
		MinHold: req.MinHold.Microseconds(), Host: sanitize(h.Host), PID: h.PID, Label: sanitize(h.Label), Kind: h.Kind,
	}
}

// sanitize replaces bytes that a text column can't store.
func sanitize(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// Process returns the id of the driver that made the entry.
func (e *Entry) Process() string {
	id, _, _ := strings.Cut(e.Nonce, "-")
	return id
}

func (e *Entry) holder() driver.Holder {
	h := driver.Holder{Host: e.Host, PID: e.PID, Label: e.Label, Kind: e.Kind}
	if e.Kept {
		h.Kind = driver.KindKept
	}
	return h
}

// A State is a row at the time Now, without the holders that had ended by then. If the row is
// malformed, the state has neither holders nor waiters.
type State struct {
	Name    string
	Slots   int // of the latest request; 0 for a lock
	Holders []Entry
	Waiters []Entry
	Now     int64
	Err     error // why the row can't be used, or nil
}

// HolderOf returns the entry with which the attempt with this nonce already holds the lock, or nil.
func (s *State) HolderOf(nonce string) *Entry {
	for i, h := range s.Holders {
		if h.Nonce == nonce && !h.Kept {
			return &s.Holders[i]
		}
	}
	return nil
}

// Fits reports whether the kind of req is allowed for the name at present.
func (s *State) Fits(req driver.Request) bool {
	return (s.Slots > 0) == (req.Slots > 0) || len(s.Holders)+len(s.Waiters) == 0
}

// Refusal returns the reason why a request was not granted in this state.
func (s *State) Refusal(req driver.Request) error {
	if s.Fits(req) {
		return driver.ErrHeld
	}
	return driver.KindError(s.Slots)
}

// Position returns how many waiters are ahead of e, whether e can be granted the lock, and if not,
// after which delay the state may change by itself. If no waiter has the nonce of e, place is -1,
// and the other results are for e at the end of the queue.
func (s *State) Position(e Entry) (place int, grantable bool, delay time.Duration) {
	ahead, exclusive, least := len(s.Holders), false, math.MaxInt
	firstEnd := s.Now + time.Hour.Microseconds()
	for _, h := range s.Holders {
		exclusive, least = exclusive || !h.Shared, min(least, h.Slots)
		firstEnd = min(firstEnd, h.Until)
	}
	place = -1
	for i, w := range s.Waiters {
		if w.Nonce == e.Nonce {
			place, e = i, w
			break
		}
		ahead++
		exclusive, least = exclusive || !w.Shared, min(least, w.Slots)
		if w.Until > 0 {
			firstEnd = min(firstEnd, w.Until)
		}
	}
	grantable = ahead == 0 || e.Shared && !exclusive
	if s.Slots > 0 {
		grantable = ahead < min(least, e.Slots)
	}
	return place, grantable, time.Duration(firstEnd-s.Now) * time.Microsecond
}

// OthersWait reports whether a waiter belongs to another driver than the one with this id.
func (s *State) OthersWait(id string) bool {
	return slices.ContainsFunc(s.Waiters, func(w Entry) bool { return w.Process() != id })
}

// status describes the state for people.
func (s *State) status() driver.Status {
	st := driver.Status{Name: s.Name}
	if len(s.Waiters) > 0 {
		st.Shared, st.Slots = s.Waiters[0].Shared, s.Waiters[0].Slots
	}
	for i, h := range s.Holders {
		if st.Shared = h.Shared; i == 0 || h.Slots < st.Slots {
			st.Slots = h.Slots
		}
		st.Holders = append(st.Holders, driver.Holding{
			ID: h.ID, Token: h.Token, Holder: h.holder(), Held: Between(h.Since, s.Now), Left: Between(s.Now, h.Until),
		})
	}
	for _, w := range s.Waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			ID: w.ID, Shared: w.Shared, Holder: w.holder(), Waited: Between(w.Since, s.Now),
		})
	}
	return st
}
