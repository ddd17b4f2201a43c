// Package wire has the messages between a lock service, package serve, and its clients, such as
// package remotelock. They are JSON. Times are relative, in whole milliseconds.
//
// # Deadlines
//
// A client reads its own clock just before it sends a request. A hold that the answer grants or
// renews lasts its ttl_ms from then on. After a wait, it lasts that long from waited_ms later: the
// service counts the wait from the arrival of the request, and tells one part in [driver.Drift]
// less, so the sum is never too late. A client may leave waited_ms out of account.
package wire

import (
	"runtime/debug"
	"time"

	"github.com/sniblock/snib/driver"
)

// The paths of the API. Those of operations are for POST, the others for GET.
const (
	PathAcquire  = "/v1/acquire"
	PathWithdraw = "/v1/withdraw"
	PathRenew    = "/v1/renew"
	PathRelease  = "/v1/release"
	PathLabel    = "/v1/label"
	PathBreak    = "/v1/break"
	PathFence    = "/v1/fence"

	PathLock   = "/v1/lock"
	PathLocks  = "/v1/locks"
	PathEvents = "/v1/events"
	PathStore  = "/v1/store"
	PathAudit  = "/v1/audit"
	PathDoctor = "/v1/doctor"
	PathLeaks  = "/v1/leaks"

	PathHealth  = "/healthz"
	PathReady   = "/readyz"
	PathMetrics = "/metrics"
)

// HeaderStore is the header of a request with the ID of the [Store] that it is for. A service with
// another store does nothing for it.
const HeaderStore = "Snib-Store"

// The content types of the API.
const (
	TypeJSON    = "application/json"
	TypeProblem = "application/problem+json"
	TypeLines   = "application/x-ndjson"
)

// The limits of the API. A service may have others for the rest.
const (
	MinID     = 20   // characters of an id; fewer could be guessed
	MaxID     = 128  // characters
	MaxLabel  = 1024 // bytes
	MaxReason = 1024 // bytes
	MaxLeases = 5000 // in one batch of renewals
	MaxTokens = 128  // that a hold can use; each puts those of the store ahead of its clock by 1 µs
)

// DefaultTTL is the TTL of a hold whose request has none.
const DefaultTTL = 30 * time.Second

// An Acquire asks for a lock. A client repeats it with the same ID if it did not get the answer, or
// to keep its place in the queue. Then it gets the hold that it has, or keeps the place.
type Acquire struct {
	Name string `json:"name"`

	// ID names the acquisition, and the hold that it leads to. The client makes a new one for each
	// acquisition, of MinID to MaxID characters from A-Z, a-z, 0-9, _ and -, which nobody can
	// guess. If it is empty, the service makes one up.
	ID string `json:"id,omitempty"`

	// Brief leaves out of a refusal who holds the lock.
	Brief bool `json:"brief,omitempty"`

	Wait    int64 `json:"wait_ms,omitempty"` // how long this request may take; 0: the lock must be free
	TTL     int64 `json:"ttl_ms,omitempty"`  // 0: DefaultTTL
	Shared  bool  `json:"shared,omitempty"`
	Slots   int   `json:"slots,omitempty"`
	MinHold int64 `json:"min_hold_ms,omitempty"`
	Tokens  int   `json:"tokens,omitempty"` // how many the caller can use; 0: one

	Process

	// Reserve makes the hold a reservation: no process holds the lock, and nobody needs to renew
	// it. It lasts for TTL; if that is 0, until it is handed back. Label says why.
	Reserve bool `json:"reserve,omitempty"`
}

// A Granted is the answer to an Acquire that was granted.
type Granted struct {
	Name string `json:"name"`

	// ID is that of the hold, for all requests about it. It begins with the ID of the request, and
	// it is a secret.
	ID     string `json:"id"`
	Token  uint64 `json:"token"`
	Tokens int    `json:"tokens,omitempty"` // from Token on; 0: one
	TTL    int64  `json:"ttl_ms"`           // see the package comment
	Waited int64  `json:"waited_ms"`        // likewise
}

// A Queued is the answer to an Acquire that still waits. Its place is kept for PlaceTimeout: until
// then the client sends the Acquire again, with this ID.
type Queued struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	PlaceTimeout int64  `json:"place_ms"`
}

// A Lease names a hold: by its name, and its ID as Granted has it. The ID of the Acquire will do,
// but costs the service a request to the store. It is the message to PathWithdraw, which gives up
// an acquisition, and to PathRelease, where the MinHold of the Acquire may keep the lock taken.
type Lease struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

// A Renew asks for more time, for one hold, or for those in Leases.
type Renew struct {
	*Lease       // nil if there are Leases
	TTL    int64 `json:"ttl_ms,omitempty"` // from now on; 0: DefaultTTL

	Leases []Renewable `json:"leases,omitempty"`
}

// A Renewable is a hold in a batch.
type Renewable struct {
	Lease
	TTL int64 `json:"ttl_ms,omitempty"`
}

// A Renewed is the answer for one hold. In a batch, Type is empty or the type of a [Problem].
type Renewed struct {
	TTL    int64  `json:"ttl_ms,omitempty"`
	Type   string `json:"type,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// A RenewedAll is the answer to a batch, in its order.
type RenewedAll struct {
	Results []Renewed `json:"results"`
}

// A Label changes what people see of a hold: all of Process is replaced.
type Label struct {
	Lease
	Process

	// Reserved takes a reservation over, whoever made it: then ID is empty, and Token says which
	// one was seen. Its end stays.
	Reserved bool   `json:"reserved,omitempty"`
	Token    uint64 `json:"token,omitempty"`
}

// A Break ends the hold that was seen, by force.
type Break struct {
	Name   string `json:"name"`
	Token  uint64 `json:"token,omitempty"` // of the hold that was seen
	ID     string `json:"id,omitempty"`    // instead of Token, by those who have the id
	Reason string `json:"reason"`

	// Reserved hands a reservation back, whoever made it. No other hold is ended.
	Reserved bool `json:"reserved,omitempty"`
}

// A Fence asks a resource to let a hold in.
type Fence struct {
	Resource string `json:"resource"`
	ID       string `json:"id"` // as Granted has it or as the request had it
	Token    uint64 `json:"token"`
}

// A Lock is what the store knows of a lock.
type Lock struct {
	Name    string   `json:"name"`
	Mode    string   `json:"mode"` // "exclusive", "shared" or "slots"
	Slots   int      `json:"slots,omitempty"`
	Holders []Holder `json:"holders"`
	Waiters []Waiter `json:"waiters"` // in order; of other replicas, one for each
}

// The modes of a lock.
const (
	ModeExclusive = "exclusive"
	ModeShared    = "shared"
	ModeSlots     = "slots"
)

// A Process is a holder or a waiter as people see it.
type Process struct {
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`

	// Kind says what keeps a hold alive: see [driver.HolderKind]. It is empty for KindProcess.
	Kind string `json:"kind,omitempty"`
}

// The kinds of holders that a client can ask for.
const (
	KindProcess  = "process"
	KindDetached = "detached"
)

// ProcessOf returns a holder as messages have it.
func ProcessOf(h driver.Holder) Process {
	p := Process{Host: h.Host, PID: h.PID, Label: h.Label}
	if h.Kind != driver.KindProcess {
		p.Kind = h.Kind.String()
	}
	return p
}

// Holder returns a holder as the contract has it. An unknown kind is KindProcess.
func (p Process) Holder() driver.Holder {
	h := driver.Holder{Host: p.Host, PID: p.PID, Label: p.Label}
	_ = h.Kind.UnmarshalText([]byte(p.Kind)) // it never fails
	return h
}

// A Holder has a hold. Its times are those of [driver.Holding].
type Holder struct {
	ID    string `json:"id,omitempty"` // only at PathLock, for those with the right "admin"
	Token uint64 `json:"token"`
	Process
	Held      int64     `json:"held_ms,omitempty"` // 0: unknown
	Left      int64     `json:"left_ms"`
	Endless   bool      `json:"endless,omitempty"` // only a release ends it
	Inherited bool      `json:"inherited,omitempty"`
	Heirs     []Process `json:"heirs,omitempty"`
	Foreign   string    `json:"foreign,omitempty"`
	Unsure    bool      `json:"unsure,omitempty"` // it may be no lock: nobody can end it
	Count     int       `json:"count,omitempty"`
}

// A Waiter waits for a lock.
type Waiter struct {
	ID     string `json:"id,omitempty"` // likewise
	Shared bool   `json:"shared,omitempty"`
	Process
	Waited int64 `json:"waited_ms"`
}

// An Event is one message of a stream of events. A stream begins with a reset, a lock message for
// each lock, and ready, and does so again if its client was too slow: what it knew before is void.
type Event struct {
	Type string `json:"type"`         // one of those below
	At   string `json:"at,omitempty"` // when the service saw it, by its clock, as RFC 3339 has it

	// Lock is the lock as it was seen then. Without holders and waiters it is gone.
	Lock *Lock `json:"lock,omitempty"`

	// Holder is whose hold has begun or ended.
	Holder *Holder `json:"holder,omitempty"`
}

// The types of events.
const (
	EventReset       = "reset"       // all locks follow
	EventLock        = "lock"        // one of them
	EventReady       = "ready"       // that was the last one
	EventAcquired    = "acquired"    // there is a hold that was not there before
	EventReleased    = "released"    // a hold has ended, in whatever way
	EventChanged     = "changed"     // the waiters, or what people see of a holder
	EventSeen        = "seen"        // the store was listed, and what is known is as new as that
	EventUnavailable = "unavailable" // the store could not be listed, or has too many locks
)

// A Store is what the store behind the service promises: see [driver.Info].
type Store struct {
	API          string   `json:"api"`          // Version
	Program      string   `json:"program"`      // the version of the program that serves; "unknown": its build says none
	ID           string   `json:"id,omitempty"` // the same at all replicas on one store; "": unknown
	Backend      string   `json:"backend"`
	Fencing      string   `json:"fencing"`
	Shared       bool     `json:"shared"`
	Slots        bool     `json:"slots"`
	MinTTL       int64    `json:"min_ttl_ms,omitempty"`
	MaxTTL       int64    `json:"max_ttl_ms,omitempty"`
	MaxWait      int64    `json:"max_wait_ms"`
	PlaceTimeout int64    `json:"place_ms"`
	Assumptions  []string `json:"assumptions"`
	Unmet        []string `json:"unmet,omitempty"`
}

// ProgramVersion returns the version of this program, as the go command recorded it.
func ProgramVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Version is that of the messages.
const Version = "snib.serve/1"

// Millis returns d in milliseconds, rounded up: a TTL may only get longer on its way.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Duration returns a number of milliseconds as a duration. A number that is too great becomes the
// greatest duration in whole milliseconds.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// Strength returns the fencing strength with a name.
func Strength(name string) (driver.Fencing, bool) {
	for _, f := range []driver.Fencing{driver.FencingNone, driver.FencingClock, driver.FencingDurable} {
		if f.String() == name {
			return f, true
		}
	}
	return driver.FencingNone, false
}

// A Diagnosis is what was found out about the store behind the service, as "snib doctor" does.
type Diagnosis struct {
	Findings []Finding `json:"findings"`
}

// A Finding is one thing that was checked.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // "ok", "note" or "unmet"
	Value   string `json:"value"`   // what was found, in words
	Advice  string `json:"advice,omitempty"`
}

// Leaks are what will not end by itself, or later than it should, as "snib leaks" finds it.
type Leaks struct {
	Leaks []Leak `json:"leaks"`
}

// A Leak is one of them.
type Leak struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`    // of the lock; a key in the store if it is foreign
	Problem string `json:"problem"` // in words
	Library string `json:"library,omitempty"`
	Unsure  bool   `json:"unsure,omitempty"` // it may be no lock
}

// An Audit has the latest events of the audit log of a replica, the latest first.
type Audit struct {
	Events []AuditEvent `json:"events"`
}

// An AuditEvent is one line of the audit log. It contains no id of a grant and no credential.
type AuditEvent struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`               // "break", "reserve" or "refused"
	Outcome   string    `json:"outcome,omitempty"`   // "begun", "done", "failed" or "unknown"
	Who       string    `json:"who,omitempty"`       // the principal; "" if nobody was authenticated
	Remote    string    `json:"remote"`              // the address of the client
	Verb      string    `json:"verb,omitempty"`      // the right that the request needs
	Op        string    `json:"op,omitempty"`        // what the request asks for
	Namespace string    `json:"namespace,omitempty"` // of the principal
	Name      string    `json:"name,omitempty"`      // the lock or the resource, as the principal calls it
	Token     uint64    `json:"token,omitempty,string"`
	Reason    string    `json:"reason,omitempty"` // of a break or reservation: what the client said; of a refusal: ours
	// refusals before this line that have none, because there were too many
	LeftOut int `json:"left_out,omitempty"`
}
