package redlock

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// A holder is the JSON that describes a client. It follows nonce and token in a lock's key, and
// also stands in the hash of the waiters.
type holder struct {
	Since int64  `json:"since"` // microseconds, by the node's clock; set by the node
	ID    string `json:"id"`
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Label string `json:"label"`

	Kind driver.HolderKind `json:"kind"`

	// Tokens is the number of tokens of the lease, if it has more than one. The token before
	// the JSON is the last of them.
	Tokens uint64 `json:"tokens"`

	MinHold int64 `json:"minHold"` // milliseconds

	// Set is when the client set another description, in microseconds by its own clock, and 0 before
	// it has. It tells the newer one if nodes differ, because one of them is late.
	Set int64 `json:"set"`
}

func (h holder) toDriver() driver.Holder {
	return driver.Holder{Host: h.Host, PID: h.PID, Label: h.Label, Kind: h.Kind}
}

// firstToken returns the first of a lease's tokens, given the last.
func (h *holder) firstToken(last uint64) uint64 { return last - min(max(h.Tokens, 1)-1, last) }

// encodeHolder returns a holder as JSON, without the opening brace and without since. The argument
// set is that of the holder.
func encodeHolder(req *driver.Request, set int64) string {
	h := &req.Holder
	b := make([]byte, 0, 64+len(req.ID)+len(h.Host)+len(h.Label))
	b = append(rediskit.AppendJSON(append(b, `"id":`...), req.ID), ',')
	b = rediskit.AppendHolder(b, h)
	if n := req.TokenBlock(); n > 1 {
		b = append(b, `,"tokens":`...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	if req.MinHold > 0 {
		b = append(b, `,"minHold":`...)
		b = append(b, rediskit.Millis(req.MinHold)...)
	}
	if set > 0 {
		b = append(b, `,"set":`...)
		b = strconv.AppendInt(b, set, 10)
	}
	return string(append(b, '}'))
}

// A value is the content of a lock's key.
type value struct {
	nonce  string // with its space; or the value of a foreign key
	token  uint64 // the last one of the lease
	holder holder
	ours   bool // the value is in the driver's format
	kept   bool // released, but kept closed until MinHold is over
}

// minHoldLeft returns how much of MinHold is left at the time now, in microseconds by the clock
// that recorded the grant.
func (v *value) minHoldLeft(now string) time.Duration {
	at, err := strconv.ParseInt(now, 10, 64)
	if err != nil || v.holder.MinHold <= 0 {
		return 0
	}
	return millis(v.holder.MinHold) - rediskit.Micros(at-v.holder.Since)
}

// millis returns a time in milliseconds, and at most maxLeft.
func millis(ms int64) time.Duration {
	return rediskit.Micros(min(max(ms, 0), maxLeft.Milliseconds()) * 1000)
}

// keptPrefix begins the nonce of a lock that is kept closed until MinHold is over.
const keptPrefix = "kept:"

func parseValue(text string) value {
	nonce, rest, _ := strings.Cut(text, " ")
	number, description, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(number, 10, 64)
	v := value{nonce: nonce + " ", token: token}
	if err != nil || json.Unmarshal([]byte(description), &v.holder) != nil {
		return value{nonce: text, holder: holder{ID: text}}
	}
	v.ours, v.kept = true, strings.HasPrefix(nonce, keptPrefix)
	if v.kept {
		v.holder.Kind = driver.KindKept
	}
	return v
}
