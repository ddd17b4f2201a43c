package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// TestCheckTTL checks which TTLs a backend supports, and that the default is one of them.
func TestCheckTTL(t *testing.T) {
	session := func(d time.Duration) driver.Info {
		return driver.Info{Tenure: driver.TenureSession, SessionTTL: d}
	}
	tests := []struct {
		name    string
		info    driver.Info
		ttl     time.Duration
		refused string // part of the error; "" for none
	}{
		{"Any", driver.Info{}, time.Millisecond, ""},
		{"Least", driver.Info{MinTTL: time.Second}, time.Second, ""},
		{"TooShort", driver.Info{MinTTL: time.Second}, time.Second - 1, "shorter than 1s, the minimum"},
		{"Most", driver.Info{MaxTTL: time.Second}, time.Second, ""},
		{"TooLong", driver.Info{MaxTTL: time.Second}, time.Second + 1, "longer than 1s, the maximum"},
		{"TooLongForAny", driver.Info{}, driver.LongestTTL + 1, "the maximum"},
		{"AsTheSession", session(time.Hour), time.Hour, ""},
		{"BelowTheSession", session(time.Hour), time.Hour - 1, "set session-timeout in the URL instead"},
		{"Connection", session(0), time.Second, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			switch err := checkTTL(tt.info, tt.ttl); {
			case (err != nil) != (tt.refused != ""):
				t.Errorf("checkTTL(%v) = %v, want an error: %v", tt.ttl, err, tt.refused != "")
			case err != nil && !strings.Contains(err.Error(), tt.refused):
				t.Errorf("checkTTL(%v) = %v, want %q in it", tt.ttl, err, tt.refused)
			}
			if err := checkTTL(tt.info, defaultTTLFor(tt.info)); err != nil {
				t.Errorf("the default TTL of %v: %v", defaultTTLFor(tt.info), err)
			}
		})
	}
}
