package redlock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redislock/redlock"
)

// counters returns what the operator is told of the counters of the nodes, in the order of c.nodes.
func (c *cluster) counters(t *testing.T) []error {
	t.Helper()
	all, err := redlock.Examine(within(t, enough), c.servers, c.opts...)
	if err != nil {
		t.Fatalf("Examine = %v", err)
	}
	errs := make([]error, len(c.nodes))
	for i, n := range c.nodes {
		for _, s := range all {
			if s.Address == n.Addr() {
				errs[i] = s.Counters
			}
		}
	}
	return errs
}

// A counter that a bad client has put far ahead, or made no number, spreads to no token and to no other node: the node has no vote
// for the locks of that counter, and the operator is told. A majority of such nodes grants nothing, and says why.
func TestWildCounters(t *testing.T) {
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
			free(t, take(t, d, ask("x", "o", ttl)))
			c.nodes[0].Must("HSET", "snib.redlock", "c1667", wild) // the counter of x
			most := uint64(time.Now().Add(time.Hour).UnixMicro())
			last := uint64(0)
			for i := range 5 {
				l := take(t, d, ask("x", fmt.Sprint(i), ttl))
				if token(l) > most || token(l) <= last {
					t.Fatalf("token %d after %d, want one about the clock", token(l), last)
				}
				last = token(l)
				free(t, l)
			}
			if got := c.counters(t); got[0] == nil || !strings.Contains(got[0].Error(), "c1667") || got[1] != nil || got[2] != nil {
				t.Errorf("the operator is told %v, want the counter c1667 of the first node", got)
			}
			c.nodes[1].Must("HSET", "snib.redlock", "c1667", wild)
			_, err := tried(t, d, ask("x", "o", ttl))
			says(t, "Acquire with two wild counters", err, driver.ErrUnavailable, "1 of 3 nodes take part", c.nodes[0].Addr()+": the counter c1667 is ")
			if strings.ContainsAny(err.Error(), "\x1b\a") {
				t.Errorf("Acquire = %q, with text of the store as it is", err)
			}
			free(t, take(t, d, ask("y", "o", ttl))) // another counter

			// What the page says: the nodes come back, one after the other, with the counters of the others.
			c.nodes[1].Must("HSET", "snib.redlock", "c1667", c.nodes[2].Must("HGET", "snib.redlock", "c1667"))
			c.nodes[0].Must("DEL", "snib.redlock")
			_, _ = tried(t, d, ask("x", "o", ttl)) // somebody has to notice
			c.stand(t, all(3, redlock.NodeAdmitted)...)
			if got := c.counters(t); got[0] != nil {
				t.Errorf("the operator is told %v of a node that came back", got[0])
			}
			if l := take(t, d, ask("x", "o", ttl)); token(l) <= last {
				t.Errorf("token %d after %d", token(l), last)
			}
		})
	}
}

// A floor that an operator gives counts, however far ahead it is, also on nodes that restart later.
func TestFloorAheadOfClock(t *testing.T) {
	c := start(t, 3)
	c.opts = []redlock.Option{redlock.MaxTTL(time.Second)}
	c.init(t)
	for _, n := range c.nodes {
		n.Must("DEL", "snib.redlock")
	}
	floor := uint64(time.Now().Add(1000 * time.Hour).UnixMicro())
	if err := redlock.Recover(within(t, enough), c.servers, floor, c.opts...); err != nil {
		t.Fatalf("Recover = %v", err)
	}
	c.nodes[0].Kill()
	c.nodes[0].Restart()
	d := open(t, c.servers, c.opts...)
	c.stand(t, all(3, redlock.NodeAdmitted)...)
	c.nodes[1].Kill()
	l := take(t, d, ask("x", "o", ttl))
	if token(l) <= floor {
		t.Errorf("token %d, want more than the floor %d", token(l), floor)
	}
	free(t, l)
}

// Keys of ours that hold something else, or nonsense, on all nodes keep nobody from other locks, and what can be done for the lock of that name is.
func TestMalformedKeys(t *testing.T) {
	whole := t // with which the leases of waiters end
	c := start(t, 3)
	c.init(t)
	d, other := open(t, c.servers), open(t, c.servers)
	held := take(t, other, ask("x", "a", time.Minute))
	c.have(t, "x")
	for name, spoil := range map[string][]any{
		"WaitersAreAString": {"SET", "snib.rw:x", "nonsense"},
		"WaiterWithoutTime": {"HSET", "snib.rw:x", "o", "x", "p", "", "q", "99999999999999999999999999999999{}", "b", "{"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range c.nodes {
				n.Must("DEL", "snib.rw:x")
				n.Must(spoil...)
			}
			w := jobtest.Acquiring(whole, d, ask("x", name, time.Minute))
			for i := range 20 {
				free(t, take(t, d, ask("y", fmt.Sprint(i), ttl)))
			}
			if _, err := d.Status(within(t, enough), "x"); err != nil {
				t.Errorf("Status = %v", err)
			}
			if err := renew(t, other, held); err != nil {
				t.Errorf("Renew = %v", err)
			}
			free(t, held)
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
	free(t, held)
	free(t, take(t, d, ask("x", "c", time.Minute)))
}
