package jobtest

import (
	"math"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// HugeBlock acquires locks for requests that can use more tokens than any driver reserves, and
// checks that the tokens of another lock stay near the clock. One counter for all names would
// otherwise be driven to its end, or around it, by a single request.
func HugeBlock(t *testing.T, d driver.Driver) {
	t.Helper()
	const most = 4096
	acquire := func(name string, tokens int) driver.Grant {
		t.Helper()
		l, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: name, TTL: time.Minute, Tokens: tokens})
		if err != nil {
			t.Fatalf("Acquire of %q with Tokens = %d: %v", name, tokens, err)
		}
		return l.Grant()
	}
	before := acquire("before", 1)
	for _, name := range []string{"huge", "huge again"} {
		if g := acquire(name, math.MaxInt); g.Tokens > most {
			t.Errorf("a request for %d tokens got %d, want at most %d", math.MaxInt, g.Tokens, most)
		}
	}
	after := acquire("after", 1)
	latest := uint64(time.Now().UnixMicro()) + 3*most
	if after.Token <= before.Token || after.Token > latest {
		t.Errorf("the next token is %d, want one above %d and not above %d", after.Token, before.Token, latest)
	}
}
