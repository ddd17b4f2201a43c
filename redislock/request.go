package redislock

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A request describes a process in the keys of a lock: in the queue while it waits, and in the
// grant while it holds. The scripts add the fields before Mode; a waiter has only the id of them.
// Those that only the scripts read, see encode, are missing.
type request struct {
	Kept  bool   `json:"kept"` // released, and kept by MinHold
	ID    string `json:"id"`
	Token uint64 `json:"token"`
	Since int64  `json:"since"` // microseconds
	Mode  string `json:"mode"`  // x, s, or the number of a semaphore's slots
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label"`

	Kind driver.HolderKind `json:"kind"`
}

// grantHeads are the beginnings of the values of the keys of exclusive locks.
var grantHeads = []string{`{"snib":2,"id":"`, `{"kept":true,"snib":2,"id":"`}

// parseGrant reads a grant.
func parseGrant(text string) (r request, ok bool) {
	return r, isGrant(text) && json.Unmarshal([]byte(text), &r) == nil
}

// isGrant reports whether a value, of which the beginning will do, is a grant.
func isGrant(text string) bool {
	return strings.HasPrefix(text, grantHeads[0]) || strings.HasPrefix(text, grantHeads[1])
}

// encodeID returns an id as the scripts know it: as JSON.
func encodeID(id string) string { return string(rediskit.AppendJSON(make([]byte, 0, 64), id)) }

// encode returns the request of the attempt as JSON, without the opening brace and without the
// fields that the scripts add.
func (a *attempt) encode() string {
	l, h := &a.d.listener, &a.req.Holder
	channel := l.channel(a.slot)
	b := make([]byte, 0, 512) // on the stack
	b = append(append(b, `"mode":"`...), mode(a.req)...)
	b = append(append(b, `","ttl":`...), a.ttl...)
	b = append(append(b, `,"minhold":`...), rediskit.Millis(a.req.MinHold)...)
	b = strconv.AppendInt(append(b, `,"tokens":`...), int64(a.req.TokenBlock()), 10)
	b = strconv.AppendUint(append(b, `,"attempt":"`...), a.id, 10)
	b = rediskit.AppendJSON(append(b, `","channel":`...), channel)
	if !l.sharded && a.d.conn.IsCluster() { // PUBLISH counts the subscribers of one of many servers
		b = append(b, `,"blind":true`...)
	}
	return string(appendHolder(append(b, ','), h))
}

// appendHolder appends the fields that describe a holder, which end a grant.
func appendHolder(b []byte, h *driver.Holder) []byte { return append(rediskit.AppendHolder(b, h), '}') }

// parseEntry splits the value of a hash field into a time in microseconds, of 16 digits, and a
// request or grant.
func parseEntry(s string) (at int64, r request, ok bool) {
	const digits = 16
	if len(s) < digits {
		return 0, r, false
	}
	at, err := strconv.ParseInt(s[:digits], 10, 64)
	return at, r, err == nil && json.Unmarshal([]byte(s[digits:]), &r) == nil
}

func (r request) holder() driver.Holder {
	h := driver.Holder{Host: r.Host, PID: r.PID, Label: r.Label, Kind: r.Kind}
	if r.Kept {
		h.Kind = driver.KindKept
	}
	return h
}
