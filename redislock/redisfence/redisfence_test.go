package redisfence_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/fence"
	"github.com/sniblock/snib/redislock/redisfence"
)

// TestWriteChecksMark checks that marks which no hold has are rejected: data without a mark
// would let in the first one, and the second one would keep everybody out for ever.
func TestWriteChecksMark(t *testing.T) {
	owner := strings.Repeat("0a", 16)
	g := redisfence.Guard{Key: "mark"}
	for _, m := range []fence.Mark{
		{}, {Lock: "job", Owner: owner}, {Lock: "job", Token: math.MaxInt64 + 1, Owner: owner},
		{Lock: "job", Token: 1, Owner: "me"}, {Token: 1, Owner: owner},
	} {
		if h, err := g.Write(m); h != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("Write(%+v) = %v, %v, want ErrInvalid", m, h, err)
		}
	}
	if _, err := g.Write(fence.Mark{Lock: "job", Token: 1, Owner: owner}); err != nil {
		t.Errorf("Write of a sound mark = %v", err)
	}
}
