package redlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/internal/quorum"
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
