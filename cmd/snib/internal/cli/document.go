package cli

import (
	"strconv"
	"strings"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock"
)

// The documents that -o json prints, and their parts. docs/schemas.md has them as tables, in which
// the comment on a field is its meaning. The number of a schema grows if a field changes its
// meaning or is removed; new fields may be added at any time. Durations are in seconds.

type lsJSON struct {
	Schema string     `json:"schema"`
	Store  string     `json:"store"` // the URL of the store, without secrets
	Locks  []lockJSON `json:"locks"` // sorted by name
}

type showJSON struct {
	Schema string `json:"schema"`
	Store  string `json:"store"` // the URL of the store, without secrets
	lockJSON
}

type heldJSON struct {
	Schema string  `json:"schema"`
	Name   string  `json:"name"`             // the name of the lock
	ID     string  `json:"id"`               // of the hold
	Token  uint64  `json:"token"`            // its fencing token
	TTL    float64 `json:"ttl"`              // how long the hold lasts
	Keeper string  `json:"keeper,omitempty"` // `hold`: for `SNIB_KEEPER`
}

type leaksJSON struct {
	Schema string     `json:"schema"`
	Store  string     `json:"store"`  // the URL of the store, without secrets
	Looked int        `json:"looked"` // the number of locks that were examined
	More   bool       `json:"more"`   // whether the search ended because 1,000 were found
	Leaks  []leakJSON `json:"leaks"`  // what was found
}

type countJSON struct {
	Schema  string `json:"schema"`
	Store   string `json:"store"`   // the URL of the store, without secrets
	Prefix  string `json:"prefix"`  // locks were counted if their names begin with it
	Locks   int    `json:"locks"`   // locks that are held or waited for
	Held    int    `json:"held"`    // locks that are held
	Shared  int    `json:"shared"`  // those of the held locks that are shared
	Slots   int    `json:"slots"`   // those of the held locks that are semaphores
	Holders int    `json:"holders"` // the holders of all these locks
	Waiters int    `json:"waiters"` // the waiters of all these locks
	// those of the held locks that snib did not take, if there are any: with `--foreign`
	Foreign int `json:"foreign,omitempty"`
}

type doctorJSON struct {
	Schema string            `json:"schema"`
	Store  string            `json:"store"`  // the URL of the store, without secrets
	Checks []backend.Finding `json:"checks"` // what was found
}

// The parts of the documents.

type lockJSON struct {
	Name    string       `json:"name"`            // the name of the lock
	Mode    string       `json:"mode"`            // `free`, `exclusive`, `shared` or `slots`
	Slots   int          `json:"slots,omitempty"` // the least number that a holder of a semaphore asked for
	Holders []holderJSON `json:"holders"`         // who holds it
	Waiters []waiterJSON `json:"waiters"`         // who waits for it
}

type holderJSON struct {
	// a digest of the id, which `--id` of `snib release` accepts in its place. Missing if there is
	// none, or a lock service hides it. The id itself is never shown, because anyone who knows it
	// can release the lock
	IDDigest string `json:"id_digest,omitempty"`
	Token    uint64 `json:"token"` // its fencing token
	processJSON
	// the time since the grant; in ZooKeeper, since the request. Missing if it is not known
	Held *float64 `json:"held,omitempty"`
	Left float64  `json:"left"` // the time until the lease ends if it is not renewed
	// true if the holder is gone and its heirs keep the lock. Then `left` says nothing
	Inherited bool       `json:"inherited,omitempty"`
	Heirs     []heirJSON `json:"heirs,omitempty"` // the heirs that can be seen
	// in Redis and Redlock, who has a hold that snib did not take, in words. Missing if that is not
	// known. Without an `id_digest`, unless a lock service hides it, it is something else in the
	// lock's place, which may be no lock
	Foreign string `json:"foreign,omitempty"`
	Count   int    `json:"count,omitempty"` // how often its holder has acquired it, if the store counts that
}

type heirJSON struct {
	PID   int    `json:"pid"`             // the id of the process
	Label string `json:"label,omitempty"` // the name of its program. Missing if it is not known
}

type waiterJSON struct {
	IDDigest string `json:"id_digest,omitempty"` // a digest of the id. Missing if a lock service hides it
	Shared   bool   `json:"shared"`              // whether it waits for a shared hold
	processJSON
	Waited float64 `json:"waited"` // how long it has waited
}

// A processJSON is a driver.Holder.
type processJSON struct {
	Host  string `json:"host,omitempty"`  // the host. Missing if it is not known
	PID   int    `json:"pid,omitempty"`   // the id of the process. Missing if it is not known
	Label string `json:"label,omitempty"` // free text, such as the command. Missing if it is not known
	// what keeps the hold: detached, reserved, pending or kept. Missing if the process does
	Kind driver.HolderKind `json:"kind,omitempty"`
}

type leakJSON struct {
	Kind    string      `json:"kind"`              // the [kind](guide/operating.md#leaks)
	Name    string      `json:"name"`              // the name of the lock, or the key in the store if it is foreign
	Problem string      `json:"problem"`           // what is wrong, in words
	Library string      `json:"library,omitempty"` // the library that left it, if it is foreign and that is known
	Unsure  bool        `json:"unsure,omitempty"`  // true if it may be no lock, and is here because of the prefix
	Holder  *holderJSON `json:"holder,omitempty"`  // who holds it, if anybody does
	Waiters int         `json:"waiters"`           // the number of waiters
	Fixed   bool        `json:"fixed"`             // whether `--fix` freed it
}

func toLock(st driver.Status) lockJSON {
	return lockJSON{st.Name, mode(st), st.Slots, convert(st.Holders, toHolder), convert(st.Waiters, toWaiter)}
}

func toHolder(h driver.Holding) holderJSON {
	j := holderJSON{IDDigest: idDigest(h), Token: h.Token, processJSON: processJSON(h.Holder),
		Left: seconds(min(h.Left, endlessLeft)), Inherited: h.Inherited, Foreign: h.Foreign, Count: h.Count,
		Heirs: convert(h.Heirs, func(k driver.Holder) heirJSON { return heirJSON{k.PID, k.Label} })}
	if h.Held != 0 { // otherwise it is unknown; 0 in JSON is less than half a millisecond
		held := seconds(h.Held)
		j.Held = &held
	}
	return j
}

// idDigest returns the digest of the id of h, or "" if h has none, or a lock service hides it.
func idDigest(h driver.Holding) string {
	if h.ID == "" || isHidden(h) {
		return ""
	}
	return driver.Digest(h.ID)
}

// isHidden reports whether a lock service hides the id of h. A foreign value may begin like that.
func isHidden(h driver.Holding) bool {
	return remotelock.IsHidden(h.ID) && strings.HasSuffix(h.ID, ":"+strconv.FormatUint(h.Token, 10))
}

func toWaiter(w driver.Waiting) waiterJSON {
	j := waiterJSON{Shared: w.Shared, processJSON: processJSON(w.Holder), Waited: seconds(w.Waited)}
	if !remotelock.IsHidden(w.ID) {
		j.IDDigest = driver.Digest(w.ID)
	}
	return j
}

// convert returns the results of to for all. It never returns nil, which JSON has as null.
func convert[T, U any](all []T, to func(T) U) []U {
	made := make([]U, len(all))
	for i, one := range all {
		made[i] = to(one)
	}
	return made
}
