package driver

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Info states what a driver promises. When a Locker is built, the core refuses options that
// need more than that.
type Info struct {
	// Backend names the store in errors, logs and metrics: "sqlite", "redis".
	Backend string

	Tenure  Tenure
	Fencing Fencing

	Fair   bool // the waiters of a name are served in the order of their arrival, over all processes
	Shared bool // the driver supports Request.Shared
	Slots  bool // the driver supports Request.Slots

	// TellsLoss means that the holder is told at once when its lease is broken by force
	// (Request.OnLost), without waiting for its next renewal, as long as the store can reach the
	// driver: a pooler between the two may keep messages back.
	TellsLoss bool

	// TellsWanted means that a holder that asked for more than one token is told, by
	// Request.OnWanted, once another process waits for the lock.
	TellsWanted bool

	// RenewsAll means that Renew without leases renews all of the driver, as where one answer tells
	// that the session of all lives. The core then renews them together.
	RenewsAll bool

	// SessionTTL, where the tenure is a session, is the least time for which the session
	// outlives a client that has died or was cut off. Zero means that it may end at once, as
	// with a database connection. The core refuses a TTL that is shorter, which the driver could not
	// keep.
	SessionTTL time.Duration

	// MinTTL and MaxTTL bound Request.TTL, inclusively. Zero means no bound but [LongestTTL].
	MinTTL, MaxTTL time.Duration

	// Assumptions lists the conditions of the promises, one sentence each: "fsync is honest".
	Assumptions []string

	// Unmet lists what breaks a promise, as the driver found when it was made, one sentence each: a
	// setting of the server, for instance.
	Unmet []string
}

// Tenure is what ends the grant of a holder that has died.
type Tenure uint8

const (
	TenureLease   Tenure = iota // each lease lapses by itself at the end of its TTL
	TenureSession               // leases end together with the session that they share
)

func (t Tenure) String() string {
	if t == TenureSession {
		return "session"
	}
	return "lease"
}

// Fencing is the strength of a driver's fencing tokens. Stronger is greater.
type Fencing uint8

const (
	// FencingNone means that there are no tokens, or that they say nothing.
	FencingNone Fencing = iota

	// FencingClock means that tokens are unique and ordered while the store remembers; across a
	// loss of its memory they are ordered if clocks are right to within half the outage.
	FencingClock

	// FencingDurable means that tokens are ordered as long as a majority, or the durable store,
	// keeps what it acknowledged.
	FencingDurable
)

func (f Fencing) String() string {
	switch f {
	case FencingClock:
		return "clock"
	case FencingDurable:
		return "durable"
	default:
		return "none"
	}
}

// A Status is what a store knows of one lock. Times are relative to the moment of the answer,
// by the store's clock.
type Status struct {
	Name    string
	Shared  bool // held, or first waited for, on the read side
	Slots   int  // of a semaphore, the least number that a holder or else the first waiter asked for; 0 if it is none
	Holders []Holding
	Waiters []Waiting // in the order in which the store would serve them
}

// A Holding is one hold in a [Status]. As text it has a digest of the id, and as JSON none.
type Holding struct {
	ID     string `json:"-"` // a secret: anyone who knows it can release the lock
	Token  uint64
	Holder Holder
	Held   time.Duration // since the grant; 0 where the store does not know
	Left   time.Duration // until the lease ends if it is not renewed, or NoExpiry

	// Inherited means that the process that took the lease is gone, and that processes which it
	// started keep the lock taken until the last of them is gone. Left says nothing then. Heirs
	// are those of these processes that can be seen.
	Inherited bool
	Heirs     []Holder

	// Foreign says, as far as the store shows it, who has a hold that snib did not take:
	// "Redisson". It is empty for a hold of snib, and if only the Token, 0, tells the two apart.
	// Break can't end a hold that has Foreign and no ID: the store has something there that
	// keeps the lock from being taken, and that may be no lock.
	Foreign string

	// Count is how often the holder has acquired the lock, where the store counts that; else 0.
	Count int
}

// NoExpiry is the time left of a hold that only Release or Break ends, because the store has lost
// its expiry, or another program has written it without one. No driver grants such a hold.
const NoExpiry time.Duration = math.MaxInt64

// String returns the hold as text for logs and messages, with [Digest] instead of the id, and the
// label quoted.
func (h Holding) String() string {
	type fields Holding // without this method
	h.ID, h.Holder.Label = digestOrNone(h.ID), strconv.Quote(h.Holder.Label)
	return fmt.Sprintf("%+v", fields(h))
}

// A Waiting is one waiter in a [Status]. As text it has a digest of the id, and as JSON none.
type Waiting struct {
	ID     string `json:"-"` // a secret: anyone who knows it can release the lock later
	Shared bool
	Holder Holder
	Waited time.Duration // since the request
}

// String returns the waiter as text for logs and messages, with [Digest] instead of the id, and the
// label quoted.
func (w Waiting) String() string {
	type fields Waiting // without this method
	w.ID, w.Holder.Label = digestOrNone(w.ID), strconv.Quote(w.Holder.Label)
	return fmt.Sprintf("%+v", fields(w))
}

// digestOrNone returns the digest of an id, or "" if the id is not shown.
func digestOrNone(id string) string {
	if id == "" {
		return ""
	}
	return Digest(id)
}
