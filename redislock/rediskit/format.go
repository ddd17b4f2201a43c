package rediskit

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// Millis returns d in milliseconds, rounded up: the store must not end a lease before its holder
// does.
func Millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// Flag returns a boolean as the scripts know it.
func Flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Micros returns a time in microseconds, and at most a hundred years either way: anybody who may
// write to the store can write any number.
func Micros(us int64) time.Duration {
	const most = int64(100 * 365 * 24 * time.Hour / time.Microsecond)
	return time.Duration(min(max(us, -most), most)) * time.Microsecond
}

// AppendJSON appends text as a JSON string. It replaces bytes that are no UTF-8.
func AppendJSON(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // never fails for a string
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// AppendHolder appends the fields of a JSON object that describe a holder. The first is its pid.
func AppendHolder(b []byte, h *driver.Holder) []byte {
	b = strconv.AppendInt(append(b, `"pid":`...), int64(h.PID), 10)
	kind := ""
	if h.Kind != driver.KindProcess {
		kind = h.Kind.String()
	}
	for _, f := range [...]struct{ name, value string }{{`,"host":`, h.Host}, {`,"label":`, h.Label}, {`,"kind":`, kind}} {
		if f.value != "" {
			b = AppendJSON(append(b, f.name...), f.value)
		}
	}
	return b
}

// EscapeGlob returns the glob pattern that matches s literally.
func EscapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// DescribeUnknown describes a key of unknown use to people. A keyType is what TYPE answers.
func DescribeUnknown(keyType string) string {
	if keyType == "zset" {
		keyType = "sorted set"
	}
	return "a Redis " + keyType + " of unknown use"
}
