package redlock

import (
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// TestParseMillis reads what nodes say of the remaining time of a key. Anybody who may write to a
// node can set any expiry, and Lua writes great numbers in its own way.
func TestParseMillis(t *testing.T) {
	tests := []struct {
		text string
		want time.Duration
	}{
		{"1500", 1500 * time.Millisecond},
		{"0", 0},
		{"-1", driver.NoExpiry},
		{"-2", 0}, // the key has just expired
		{"9e+15", maxLeft},
		{"9223372036854775807", maxLeft},
		{"nonsense", driver.NoExpiry},
		{"", driver.NoExpiry},
	}
	for _, tt := range tests {
		if got := parseMillis(tt.text); got != tt.want {
			t.Errorf("parseMillis(%q) = %v, want %v", tt.text, got, tt.want)
		}
	}
}
