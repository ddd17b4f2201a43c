package rediskit

import (
	"strconv"
	"strings"
	"time"
)

// Millis returns d in milliseconds, rounded up: the store must not end a lease before its holder
// does.
func Millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
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
