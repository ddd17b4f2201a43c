package rediskit_test

import (
	"testing"
	"time"

	"github.com/sniblock/snib/redislock/rediskit"
)

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1: "1", time.Millisecond: "1", time.Millisecond + 1: "2",
		time.Minute: "60000"} {
		if got := rediskit.Millis(d); got != want {
			t.Errorf("Millis(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestEscapeGlob(t *testing.T) {
	if got, want := rediskit.EscapeGlob(`a*b?[c]\d`), `a\*b\?\[c\]\\d`; got != want {
		t.Errorf("EscapeGlob = %s, want %s", got, want)
	}
}
