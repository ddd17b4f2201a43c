package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redislock/redlock"
)

// New nodes that nobody has made a cluster grant nothing, and nobody holds anything there: it is said what helps.
func TestBlankNodesAreUnavailable(t *testing.T) {
	c := start(t, 3)
	d := open(t, c.servers)
	_, err := tried(t, d, ask("x", "o", ttl))
	says(t, "Acquire on blank nodes", err, driver.ErrUnavailable,
		"0 of 3 nodes take part", c.nodes[0].Addr()+": it is new", "run snib redlock init", "within 1m1s")
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), ttl, cause)
	defer cancel()
	_, err = d.Acquire(ctx, ask("x", "o", ttl))
	says(t, "a wait for blank nodes", err, driver.ErrUnavailable, "0 of 3 nodes take part", "enough")
	says(t, "a wait for blank nodes", err, cause)
	c.init(t)
	free(t, take(t, d, ask("x", "o", ttl)))
}

// Each node that takes no part is named once with its reason, whatever that is, and a wait that may help is told from one that can't.
func TestReasonsOfNodes(t *testing.T) {
	c := start(t, 5)
	c.init(t)
	d := open(t, c.servers)
	c.nodes[0].Must("HSET", "snib.redlock", "admitted", "another run")
	c.nodes[1].Must("RPUSH", "x", "no lock")
	c.nodes[2].Must("HSET", "snib.redlock", "cluster", "\x1b]0;title\a", "self", "a:1")
	_, err := tried(t, d, ask("x", "o", ttl))
	says(t, "Acquire", err, driver.ErrUnavailable, "2 of 5 nodes take part",
		c.nodes[0].Addr()+": it restarted", c.nodes[1].Addr()+": the lock's key is a list", c.nodes[2].Addr()+": ", `\x1b`)
	if strings.ContainsAny(err.Error(), "\x1b\a") || strings.Contains(err.Error(), "()") {
		t.Errorf("Acquire = %q, with text of a store as it is, or without a reason", err)
	}
	for _, n := range c.nodes {
		if strings.Count(err.Error(), n.Addr()) > 1 {
			t.Errorf("Acquire = %q, which names %s more than once", err, n.Addr())
		}
	}
	free(t, take(t, d, ask("y", "o", time.Minute))) // three of five are enough for another lock
}

// A deadline is kept to within CancelTimeout while nodes hang, also one of a wait for a holder.
func TestDeadlineOnHungNodes(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	holder := open(t, c.servers)
	held := take(t, holder, ask("x", "a", time.Minute))
	const rounds, more = 3, 15 // a machine may be late once, or more often
	least := time.Hour
	for i := 0; i < rounds || i < more && least > driver.CancelTimeout; i++ {
		d := open(t, c.servers, redlock.NodeTimeout(5*time.Second)) // it does not find out that the nodes hang
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		over := make(chan time.Time, 1)
		done := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, ask("x", "b", time.Minute))
			over <- time.Now()
			done <- err
		}()
		livetest.Await(t, "waiter in the nodes", func() error {
			st, err := holder.Status(within(t, enough), "x")
			if err == nil && len(st.Waiters) == 0 {
				err = errors.New("nobody waits")
			}
			return err
		})
		for _, n := range c.nodes {
			n.Hang()
		}
		cancel(cause)
		began := time.Now()
		says(t, "a wait whose context is done", <-done, cause)
		least = min(least, (<-over).Sub(began))
		for _, n := range c.nodes {
			n.Resume()
		}
		cancel(nil)
		livetest.Await(t, "renewal", func() error { return renew(t, holder, held) }) // they go on
	}
	if least > driver.CancelTimeout {
		t.Errorf("waits returned %v after their contexts were done at the least, want %v at most", least, driver.CancelTimeout)
	}
	free(t, held)
	nothingLeft(t, c.nodes...)
}
