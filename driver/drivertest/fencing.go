package drivertest

import (
	"fmt"
	"math"
	"time"

	"github.com/sniblock/snib/driver"
)

func fencingClauses() []clause {
	return gated(fencing(), []clause{
		{
			name: "Fencing/Increases",
			why:  "a resource tells the present holder from a former one, of any process, by the greater token",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				var last uint64
				for i := range 5 {
					for n, d := range []driver.Driver{d1, d1, d1, d2} {
						last = t.nextToken(d, last, fmt.Sprint("a", i, n))
					}
				}
				t.nextToken(t.open(), last, "late comer")
			},
		},
		{
			name: "Fencing/AfterExpiry",
			why:  "the hold that expired is the very one whose late writes the next token must fence off",
			gate: leaseTenure(),
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				old := t.acquire(d1, t.shortReq("a"))
				t.waitForExpiry(d2, old)
				if got := t.acquire(d2, t.req("b")).Grant().Token; got <= old.Grant().Token {
					t.Errorf("Token after an expiry = %d, want more than %d", got, old.Grant().Token)
				}
			},
		},
		{
			name: "Fencing/AfterIdle",
			why:  "the number outlives the lock: a counter that lapses when nobody is interested starts again below",
			run: func(t *trial) {
				d := t.open()
				last := t.nextToken(d, 0, "a")
				idle := 3 * t.h.TTL
				if t.h.Bubble {
					idle *= 1000
				}
				t.sleep(idle)
				t.nextToken(d, last, "b")
			},
		},
		{
			name: "Fencing/AcrossRestart",
			why:  "a restart of the store must not hand out tokens that resources have seen before",
			gate: when(func(_ driver.Info, h Harness) bool { return h.Restart != nil }, "the harness can't restart the store"),
			run: func(t *trial) {
				d := t.open()
				last := t.nextToken(d, 0, "a")
				t.mustAnswer(d.Close(), nil, "Close")
				t.h.Restart(t.T)
				t.nextToken(t.open(), last, "b")
			},
		},
		{
			name: "Fencing/Reserved",
			why:  "tokens reserved for local hand-overs belong to that lease, used or not: the next one lies beyond them",
			run: func(t *trial) {
				d1, d2 := t.open(), t.open()
				var last uint64
				for i := range 3 {
					req := t.req(fmt.Sprint("a", i))
					req.Tokens = driver.MaxTokens // no clock catches up with them by chance
					l := t.acquire(d1, req)
					g := l.Grant()
					if g.Tokens < 0 || g.Tokens > req.Tokens {
						t.Fatalf("Tokens = %d, want at most the %d asked for", g.Tokens, req.Tokens)
					}
					if g.Token <= last {
						t.Fatalf("Token = %d, want more than %d", g.Token, last)
					}
					t.release(l)
					last = t.nextToken(d2, g.Token+uint64(max(g.Tokens, 1))-1, fmt.Sprint("b", i))
				}
			},
		},
		{
			name: "Fencing/Bounded",
			why:  "no request may drive the tokens to their end, or so far ahead that no clock catches up with them",
			run: func(t *trial) {
				for i, shared := range []bool{false, t.info.Shared} {
					d := t.open()
					req := t.req(fmt.Sprint("greedy ", i))
					req.Tokens, req.Shared = math.MaxInt, shared
					l := t.acquire(d, req)
					g := l.Grant()
					if g.Tokens > driver.MaxTokens {
						t.Fatalf("Tokens = %d, want %d at most", g.Tokens, driver.MaxTokens)
					}
					t.release(l)
					last := g.Token + uint64(max(g.Tokens, 1)) - 1
					if next := t.nextToken(d, last, fmt.Sprint("next ", i)); next-last > uint64(time.Hour.Microseconds()) {
						t.Errorf("Token = %d after a block that ended with %d", next, last)
					}
				}
			},
		},
	})
}

// nextToken takes and releases a lease, whose token must be greater than last, and returns its
// token.
func (t *trial) nextToken(d driver.Driver, last uint64, id string) uint64 {
	t.Helper()
	l := t.acquire(d, t.req(id))
	got := l.Grant().Token
	if got <= last {
		t.Fatalf("Token = %d, want more than %d", got, last)
	}
	t.release(l)
	return got
}
