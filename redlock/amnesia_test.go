package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/internal/quorum"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// TestAmnesia kills a majority of the servers under a hold, one after the other. They come back
// without memory. Still, nobody gets the lock while the hold is valid, and the next holder has
// a greater token.
func TestAmnesia(t *testing.T) {
	ttl := 4 * time.Second // time to restart three servers and to try
	for !amnesiaRound(t, ttl) {
		if ttl *= 2; ttl > time.Minute {
			t.Fatal("each hold was over before anybody tried")
		}
	}
}

// amnesiaRound is one try of TestAmnesia. It reports whether anybody tried in time.
func amnesiaRound(t *testing.T, ttl time.Duration) (inTime bool) {
	t.Helper()
	c := start(t, 5)
	c.opts = []redlock.Option{redlock.MaxTTL(ttl)}
	c.init(t)
	holder, other := open(t, c.servers, c.opts...), open(t, c.servers, c.opts...)
	l := acquire(t, holder, request("the lock", "holder", ttl))
	for _, n := range c.nodes[:3] {
		n.Kill()
		n.Restart()
	}
	end, tries := l.Grant().Start.Add(quorum.Validity(ttl)), 0
	for n := 0; ; n++ {
		got, err := other.Acquire(t.Context(), driver.Request{Name: "the lock", ID: fmt.Sprint("other ", n), TTL: ttl,
			NoWait: true})
		if end.Reached(driver.Now()) {
			break
		}
		if err == nil {
			t.Fatalf("the lock is granted, with token %d, while another hold, with token %d, is valid for another %v",
				got.Grant().Token, l.Grant().Token,
				end.Left(driver.Now()))
		}
		tries++
		time.Sleep(5 * time.Millisecond) // no busy loop
	}
	if tries == 0 {
		t.Logf("a hold of %v was over before anybody tried", ttl)
		return false
	}
	next, err := other.Acquire(within(t, ttl+testTimeout), request("the lock", "next", ttl))
	if err != nil {
		t.Fatalf("Acquire when the hold was over = %v", err)
	}
	if next.Grant().Token <= l.Grant().Token {
		t.Errorf("token %d after %d", next.Grant().Token, l.Grant().Token)
	}
	return true
}

// After contention a hold may be on two of three nodes only. If one of the two forgets it, the rest
// still know too little to call the lock free, and once a second one has forgotten, to answer.
func TestStatusWithForgetfulNodes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d, people := open(t, c.servers), open(t, c.servers)
	acquire(t, d, request("x", "o", time.Minute))
	c.awaitKeys(t, "x")
	c.nodes[2].Must("HINCRBY", "snib.redlock", "c1667", 1) // what another client does that had this node, and lost
	c.nodes[2].Must("DEL", "x")
	restart := func(i int) {
		c.nodes[i].Kill()
		c.nodes[i].Restart()
		livetest.Await(t, "connection to the node that restarted", func() error {
			if c.states(t)[i] == redlockadmin.NodeUnreachable {
				return fmt.Errorf("node %d is unreachable", i)
			}
			return nil
		})
	}
	restart(1)
	st, err := statusOf(t, people, "x")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].ID != "o" {
		t.Fatalf("Status while one of two nodes remembers the hold = %+v, %v, want the holder", st, err)
	}
	if err := tryRenew(t, people, people.Lease("x", "o", time.Minute)); errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew by another process = %v, and the hold is valid", err)
	}
	restart(0)
	_, err = people.Status(within(t, testTimeout), "x")
	checkError(t, "Status when a majority has forgotten", err, driver.ErrUnavailable, "1 of 3 nodes take part")
}
