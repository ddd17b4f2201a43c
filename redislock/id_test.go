package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestIDs acquires with ids that Redis, or another client, could take for something else.
func TestIDs(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, tt := range []struct {
		name, id string
		refused  string // what the error says; "" if the id is accepted
	}{
		{"Integer", "12", ""},
		{"Quotes", `"\",`, ""},
		{"Unicode", "größe ☕", ""},
		{"Marker", "snib:kept", ""},
		{"Kept", "kept:", ""},
		{"Binary", "\xff", "not valid UTF-8"},
	} {
		for _, mode := range modes {
			req := mode.as(request("job", tt.id, time.Minute))
			if tt.refused == "" {
				l := take(t, d, req)
				// Clients of SETNX and GETSET take a value that begins with a digit for a time.
				if value, _ := node.Must("GET", "job").(string); value == "" || '0' <= value[0] && value[0] <= '9' {
					t.Errorf("%s, %s: the value of the lock's key is %q", tt.name, mode.name, value)
				}
				free(t, l)
				continue
			}
			_, err := d.Acquire(t.Context(), req)
			if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.refused) ||
				strings.Contains(err.Error(), "xff") {
				t.Errorf("%s: Acquire for %q = %v, want ErrInvalid with %q and without the id", mode.name, tt.id, err,
					tt.refused)
			}
		}
	}
	nothingLeft(t, node)
}
