package mysqllock_test

import (
	"math"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest/mysqltest"
)

// TestHugeBlocksOfTokens: a request for a huge block of tokens gets a block of bounded size, so it
// can't use up the tokens of a lock.
func TestHugeBlocksOfTokens(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	d := newDriver(t, dial(t, server.DSN()))
	for kind, shared := range map[string]bool{"exclusive": false, "shared": true} {
		t.Run(kind, func(t *testing.T) {
			req := request("block "+kind, "a")
			req.Tokens, req.Shared = math.MaxInt, shared
			l := acquire(t, d, req)
			if got := l.Grant().Tokens; got != 4096 {
				t.Errorf("granted %d tokens, want 4096", got)
			}
			release(t, l)
			req.ID, req.Tokens = "b", 1
			next := acquire(t, d, req)
			if before, after := l.Grant().Token, next.Grant().Token; after < before+4096 || after > before+uint64(time.Hour.Microseconds()) {
				t.Errorf("token %d after a block from %d on", after, before)
			}
			release(t, next)
		})
	}
}
