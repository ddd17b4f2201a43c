package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// New nodes that are not initialised grant nothing, and nobody can hold a lock there. The error
// says what helps.
func TestBlankNodesAreUnavailable(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	d := open(t, c.servers)
	err := awaitRefusal(t, d, request("x", "o", ttl), c.nodes[0].Addr()+": it is new")
	checkError(t, "Acquire on blank nodes", err, driver.ErrUnavailable,
		"0 of 3 nodes take part", c.nodes[0].Addr()+": it is new", "run snib redlock init", "within 1m1s")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(within(t, testTimeout))
	waiting := request("x", "o", ttl)
	waiting.OnWait = func(error) { cancel(cause) }
	_, err = d.Acquire(ctx, waiting)
	checkError(t, "a wait for blank nodes", err, driver.ErrUnavailable, "0 of 3 nodes take part", "enough")
	checkError(t, "a wait for blank nodes", err, cause)
	c.init(t)
	release(t, acquire(t, d, request("x", "o", time.Minute)))
}

// A node that was down, and so was asked nothing, does not take part.
func TestNobodyIsAsked(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	d := open(t, c.servers)
	for _, n := range c.nodes {
		n.Kill()
	}
	livetest.Await(t, "Withdraw that asks no node", func() error {
		err := d.Withdraw(within(t, testTimeout), "x", "o")
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "0 of 3 nodes take part") {
			return fmt.Errorf("Withdraw = %w", err)
		}
		return nil
	})
}

// Acquire returns within CancelTimeout of the end of its context while nodes hang, also when it
// waits for a holder.
func TestDeadlineOnHungNodes(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	holder := open(t, c.servers)
	held := acquire(t, holder, request("x", "a", time.Minute))
	const rounds, more = 3, 15 // a machine may be late once, or more often
	least := time.Hour
	for i := 0; i < rounds || i < more && least > driver.CancelTimeout; i++ {
		// With this timeout the driver does not notice that the nodes hang.
		d := open(t, c.servers, redlock.NodeTimeout(5*time.Second))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		over := make(chan time.Time, 1)
		done := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, request("x", "b", time.Minute))
			over <- time.Now()
			done <- err
		}()
		livetest.Await(t, "waiter in the nodes", func() error {
			st, err := holder.Status(within(t, testTimeout), "x")
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
		checkError(t, "a wait whose context is done", <-done, cause)
		least = min(least, (<-over).Sub(began))
		for _, n := range c.nodes {
			n.Resume()
		}
		cancel(nil)
		// Wait until the nodes answer again.
		if err := renew(t, holder, held); err != nil {
			t.Fatalf("Renew = %v", err)
		}
	}
	if least > driver.CancelTimeout {
		t.Errorf("waits returned %v after their contexts were done at the least, want %v at most", least,
			driver.CancelTimeout)
	}
	release(t, held)
	awaitNoKeys(t, c.nodes...)
}
