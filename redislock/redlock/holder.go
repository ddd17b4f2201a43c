package redlock

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
)

// A holder is what stands in a lock's key behind nonce and token, and in the hash of those who wait.
type holder struct {
	Since int64  `json:"since"` // microseconds, by the node's clock; the node writes it
	Owner string `json:"owner"`
	PID   int    `json:"pid"`
	Host  string `json:"host"`
	Label string `json:"label"`

	// Tokens is how many belong to the lease, if not one alone. What stands before the JSON is the last of them.
	Tokens uint64 `json:"tokens"`
}

func (h holder) people() driver.Holder {
	return driver.Holder{Host: h.Host, PID: h.PID, Label: h.Label}
}

// firstOf returns the first of a lease's tokens, from the last.
func (h *holder) firstOf(last uint64) uint64 { return last - min(max(h.Tokens, 1)-1, last) }

// describeHolder writes a holder as JSON, without the brace at the beginning and without since.
func describeHolder(req *driver.Request) string {
	h := &req.Holder
	b := make([]byte, 0, 64+len(req.Owner)+len(h.Host)+len(h.Label))
	b = append(b, `"owner":`...)
	b = appendQuoted(b, req.Owner)
	b = append(b, `,"pid":`...)
	b = strconv.AppendInt(b, int64(h.PID), 10)
	for _, f := range [...]struct{ name, value string }{{`,"host":`, h.Host}, {`,"label":`, h.Label}} {
		if f.value != "" {
			b = append(b, f.name...)
			b = appendQuoted(b, f.value)
		}
	}
	if n := blockOf(req); n > 1 {
		b = append(b, `,"tokens":`...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}

// appendQuoted appends a string of JSON.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // of a string it never fails
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// A value is what stands in a lock's key.
type value struct {
	nonce  string // with its space; or a stranger's value
	token  uint64 // the last of the lease's
	holder holder
	ours   bool // it is in our format
	kept   bool // released, and kept for nobody
}

// keptPrefix begins the nonce of a lock that MinHold keeps.
const keptPrefix = "kept:"

func parseValue(text string) value {
	nonce, rest, _ := strings.Cut(text, " ")
	number, description, _ := strings.Cut(rest, " ")
	token, err := strconv.ParseUint(number, 10, 64)
	v := value{nonce: nonce + " ", token: token}
	if err != nil || json.Unmarshal([]byte(description), &v.holder) != nil {
		return value{nonce: text, holder: holder{Owner: text}}
	}
	v.ours, v.kept = true, strings.HasPrefix(nonce, keptPrefix)
	return v
}
