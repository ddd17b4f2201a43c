package redislock

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// A request is how a process stands in the keys of a lock: in the queue while it waits, and in the record while it holds. The scripts
// put the token and the time of the grant before it.
type request struct {
	Token   uint64 `json:"token"`
	Since   int64  `json:"since"` // microseconds
	Owner   string `json:"owner"`
	ID      string `json:"id"`   // of the acquisition
	Mode    string `json:"mode"` // x, s, or the size of a semaphore
	TTL     int64  `json:"ttl"`  // milliseconds
	Tokens  int    `json:"tokens"`
	Channel string `json:"channel"` // where the waiter is told; with a hash tag, by SPUBLISH
	Process string `json:"process"` // where the holder is told, if not there
	Blind   bool   `json:"blind"`   // the answer to PUBLISH says nothing of whether somebody listens
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Label   string `json:"label"`
}

// describe writes the request as JSON, as far as the scripts do not know better, without the brace at the beginning.
func (a *ask) describe(mode, ttl string) string {
	l, h := &a.d.listener, &a.req.Holder
	channel := l.channel(a.slot)
	var b strings.Builder
	b.Grow(128 + len(a.req.Owner) + len(channel) + len(h.Host) + len(h.Label))
	b.WriteString(`"owner":`)
	quote(&b, a.req.Owner)
	b.WriteString(`,"id":"`)
	var digits [20]byte
	b.Write(strconv.AppendUint(digits[:0], a.id, 10))
	b.WriteString(`","mode":"`)
	b.WriteString(mode)
	b.WriteString(`","ttl":`)
	b.WriteString(ttl)
	b.WriteString(`,"tokens":`)
	b.Write(strconv.AppendInt(digits[:0], int64(blockOf(a.req)), 10))
	b.WriteString(`,"channel":`)
	quote(&b, channel)
	if channel != l.process {
		b.WriteString(`,"process":`)
		quote(&b, l.process)
	}
	if l.blind() {
		b.WriteString(`,"blind":true`)
	}
	b.WriteString(`,"pid":`)
	b.Write(strconv.AppendInt(digits[:0], int64(h.PID), 10))
	for _, field := range [...]struct{ name, value string }{{"host", h.Host}, {"label", h.Label}} {
		if field.value != "" {
			b.WriteString(`,"` + field.name + `":`)
			quote(&b, field.value)
		}
	}
	b.WriteByte('}')
	return b.String()
}

// quote writes a string of JSON.
func quote(b *strings.Builder, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // of a string it never fails; what is not UTF-8 is replaced
			b.Write(quoted)
			return
		}
	}
	b.WriteByte('"')
	b.WriteString(s)
	b.WriteByte('"')
}

// blind reports whether PUBLISH counts the listeners of one server of many.
func (l *listener) blind() bool { return !l.sharded && l.d.conn.IsCluster() }

// entry splits what stands in a hash: a time in microseconds, in 16 digits, and a request.
func entry(s string) (at int64, r request, ok bool) {
	const digits = 16
	if len(s) < digits {
		return 0, r, false
	}
	at, err := strconv.ParseInt(s[:digits], 10, 64)
	return at, r, err == nil && json.Unmarshal([]byte(s[digits:]), &r) == nil
}

func (r request) holder() driver.Holder {
	return driver.Holder{Host: r.Host, PID: r.PID, Label: r.Label}
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
