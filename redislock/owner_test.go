package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestOwners acquires with owners that Redis, or another client, could take for something else.
func TestOwners(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, tt := range []struct {
		name, owner string
		refused     string // what the error says; "" if the owner is accepted
	}{
		{"Zero", "0", "must not be an integer"},
		{"Positive", "12", `such as "job-12"`},
		{"Negative", "-5", "must not be an integer"},
		{"Signed", "+5", "must not be an integer"}, // tonumber of Lua reads it, too
		{"Largest", "9223372036854775807", "must not be an integer"},
		{"TooLargeForINCR", "9223372036854775808", ""},
		{"TextAndNumber", "job-12", ""},
		{"NumberAndText", "12 ", ""},
		{"Marker", "snib:kept", "must not begin with"},
		{"Binary", "\xff", "not valid UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, mode := range modes {
				req := mode.as(request("job", tt.owner, time.Minute))
				if tt.refused == "" {
					free(t, take(t, d, req))
					continue
				}
				_, err := d.Acquire(t.Context(), req)
				if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("%s: Acquire for %q = %v, want ErrInvalid with %q", mode.name, tt.owner, err, tt.refused)
				}
			}
		})
	}
	nothingLeft(t, node)
}
