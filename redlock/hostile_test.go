package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// counterErrors returns what Examine reports of the nodes' counters, in the order of c.nodes.
func (c *cluster) counterErrors(t *testing.T) []error {
	t.Helper()
	statuses, err := redlock.Admin(c.servers, c.opts...).Examine(within(t, testTimeout))
	if err != nil {
		t.Fatalf("Examine = %v", err)
	}
	errs := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		for _, s := range statuses {
			if s.Address == n.Addr() {
				errs[i] = s.Counters
			}
		}
	}
	return errs
}

// A counter that a bad client has put far ahead, or made no number, affects no token and no
// other node. The node has no vote for the locks of that counter, and the operator is told. A
// majority of such nodes grants nothing, and says why.
func TestWildCounters(t *testing.T) {
	t.Parallel()
	for name, wild := range map[string]string{
		"TwoDays":  fmt.Sprint(time.Now().Add(48 * time.Hour).UnixMicro()),
		"Lua":      fmt.Sprint(uint64(1<<53 - 1)),
		"Greater":  "9223372036854775807",
		"Float":    "1e300",
		"NoNumber": "\x1b]0;x\a 4",
		"Empty":    "",
		"Negative": "-5",
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, 3)
			c.opts = []redlock.Option{redlock.MaxTTL(time.Second)}
			c.init(t)
			d := open(t, c.servers, c.opts...)
			pass(t, d, "x", "o")
			c.nodes[0].Must("HSET", "snib.redlock", "c1667", wild) // the counter of x
			most := uint64(time.Now().Add(time.Hour).UnixMicro())
			last := uint64(0)
			for i := range 5 {
				got := pass(t, d, "x", fmt.Sprint(i))
				if got > most || got <= last {
					t.Fatalf("token %d after %d, want one about the clock", got, last)
				}
				last = got
			}
			livetest.Await(t, "report of the counter c1667 of the first node", func() error { // a node may be late
				if got := c.counterErrors(t); got[0] == nil || !strings.Contains(got[0].Error(), "c1667") || got[1] != nil ||
					got[2] != nil {
					return fmt.Errorf("the operator is told %v", got)
				}
				return nil
			})
			c.nodes[1].Must("HSET", "snib.redlock", "c1667", wild)
			err := awaitRefusal(t, d, request("x", "o", ttl), "1 of 3 nodes take part",
				c.nodes[0].Addr()+": the counter c1667 is ")
			checkError(t, "Acquire with two wild counters", err, driver.ErrUnavailable)
			if strings.ContainsAny(err.Error(), "\x1b\a") {
				t.Errorf("Acquire = %q, with text of the store as it is", err)
			}
			pass(t, d, "y", "o") // another counter

			// As the documentation says, the nodes come back, one after the other, with the
			// counters of the others.
			c.nodes[1].Must("HSET", "snib.redlock", "c1667", c.nodes[2].Must("HGET", "snib.redlock", "c1667"))
			c.nodes[0].Must("DEL", "snib.redlock")
			_, _ = tryAcquire(t, d, request("x", "o", ttl)) // makes the driver notice
			c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
			if got := c.counterErrors(t); got[0] != nil {
				t.Errorf("the operator is told %v of a node that came back", got[0])
			}
			if got := pass(t, d, "x", "o"); got <= last {
				t.Errorf("token %d after %d", got, last)
			}
		})
	}
}

// A floor that an operator gives counts, however far ahead of the clock it is, also on nodes
// that restart later.
func TestFloorAheadOfClock(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.opts = []redlock.Option{redlock.MaxTTL(time.Second)}
	c.init(t)
	for _, n := range c.nodes {
		n.Must("DEL", "snib.redlock")
	}
	floor := uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
	if err := redlock.Admin(c.servers, c.opts...).Recover(within(t, testTimeout), floor); err != nil {
		t.Fatalf("Recover = %v", err)
	}
	c.nodes[0].Kill()
	c.nodes[0].Restart()
	d := open(t, c.servers, c.opts...)
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
	c.nodes[1].Kill()
	if got := pass(t, d, "x", "o"); got <= floor {
		t.Errorf("token %d, want more than the floor %d", got, floor)
	}
}

// Malformed keys of the driver on all nodes do not affect other locks. For their own lock,
// everything that is still possible works.
func TestMalformedKeys(t *testing.T) {
	t.Parallel()
	whole := t // the leases of waiters end with this test
	c := start(t, 3)
	c.init(t)
	d, other := open(t, c.servers), open(t, c.servers)
	held := acquire(t, other, request("x", "a", time.Minute))
	c.awaitKeys(t, "x")
	for name, spoil := range map[string][]any{
		"WaitersAreAString": {"SET", "snib.rw:x", "nonsense"},
		"WaiterWithoutTime": {"HSET", "snib.rw:x", "o", "x", "p", "", "q", "99999999999999999999999999999999{}", "b", "{"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range c.nodes {
				n.Must("DEL", "snib.rw:x")
				n.Must(spoil...)
			}
			w := livetest.Acquiring(whole, d, request("x", name, time.Minute))
			for i := range 20 {
				release(t, acquire(t, d, request("y", fmt.Sprint(i), time.Minute)))
			}
			if _, err := statusOf(t, d, "x"); err != nil {
				t.Errorf("Status = %v", err)
			}
			if err := renew(t, other, held); err != nil {
				t.Errorf("Renew = %v", err)
			}
			release(t, held)
			<-w.Done()
			if w.Err != nil {
				t.Fatalf("Acquire of the waiter = %v", w.Err)
			}
			held, other, d = w.Lease, d, other
		})
	}
	nonce := ""
	livetest.Await(t, "lease on the first node", func() error {
		value, _ := c.nodes[0].Must("GET", "x").(string)
		if nonce, _, _ = strings.Cut(value, " "); nonce == "" {
			return errors.New("it has none yet")
		}
		return nil
	})
	for _, value := range []string{nonce + " ", nonce + " nonsense", nonce + " 9223372036854775807 {}", nonce + " 7"} {
		for _, n := range c.nodes {
			n.Must("SET", "x", value, "PX", 60000)
		}
		if err := renew(t, other, held); err != nil {
			t.Errorf("Renew with the value %q = %v", value, err)
		}
		livetest.Await(t, "the token in all keys", func() error {
			for _, n := range c.nodes {
				if got := fmt.Sprint(n.Must("GET", "x")); !strings.HasPrefix(got, fmt.Sprintf("%s %d ", nonce, token(held))) {
					return errors.New(got)
				}
			}
			return nil
		})
	}
	release(t, held)
	release(t, acquire(t, d, request("x", "c", time.Minute)))
}

// TestStatusOfOtherKeys checks that a lock is not shown as free if a majority of the nodes has
// something other than a string in its place, such as a lock of Redisson: nobody can acquire it.
func TestStatusOfOtherKeys(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	mustShow := func(what string, right func([]driver.Holding) bool) {
		t.Helper()
		livetest.Await(t, "right status of "+what, func() error { // on a busy machine, a node may be late
			st, err := d.Status(within(t, testTimeout), "x")
			if err == nil && !right(st.Holders) {
				err = fmt.Errorf("holders %+v", st.Holders)
			}
			return err
		})
	}
	for i, n := range c.nodes { // the client of each node has another id
		n.Must("HSET", "x", fmt.Sprintf("8c8ffe61-5bd3-4d78-a5c0-2d2386af488%d:7", i), 1)
		if i < 2 {
			n.Must("PEXPIRE", "x", 60_000)
		}
	}
	foreignHash := func(got []driver.Holding) bool {
		return len(got) == 1 && got[0].ID == "" && got[0].Token == 0 && got[0].Foreign == "a Redis hash of unknown use"
	}
	mustShow("hashes on all nodes", func(got []driver.Holding) bool {
		return foreignHash(got) && got[0].Left > 0 && got[0].Left <= time.Minute // a minute later, a majority has none
	})
	livetest.Await(t, "answer to Break", func() error {
		err := d.Break(within(t, testTimeout), "x", "")
		if errors.Is(err, driver.ErrLost) {
			return nil
		}
		return fmt.Errorf("Break = %w, want ErrLost", err)
	})
	livetest.Await(t, "list", func() error {
		return d.List(within(t, testTimeout), "", func(st driver.Status) bool {
			t.Errorf("List shows %+v", st)
			return true
		})
	})
	for i, command := range []string{"RPUSH", "SADD"} {
		c.nodes[i+1].Must("DEL", "x")
		c.nodes[i+1].Must(command, "x", "a")
	}
	// the driver has the nodes in an order of its own
	mustShow("a hash, a list and a set", func(got []driver.Holding) bool {
		return len(got) == 1 && got[0].ID == "" && got[0].Token == 0 && strings.HasSuffix(got[0].Foreign, " of unknown use")
	})
	for _, n := range c.nodes[:2] {
		n.Must("DEL", "x")
	}
	mustShow("a set on one of three nodes", func(got []driver.Holding) bool { return len(got) == 0 })
	release(t, acquire(t, d, request("x", "o", time.Minute)))
}
