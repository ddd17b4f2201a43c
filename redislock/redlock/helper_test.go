package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock/redlock"
)

// enough is how long a test waits for what must happen soon.
const enough = 15 * time.Second

func ask(name, owner string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, Owner: owner, TTL: ttl}
}

// within returns a context of the test that ends.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func take(t testing.TB, d driver.Driver, req driver.Request) driver.Lease {
	t.Helper()
	l, err := d.Acquire(within(t, enough), req)
	if err != nil {
		t.Fatalf("Acquire(%q) for %s = %v", req.Name, req.Owner, err)
	}
	return l
}

func free(t testing.TB, l driver.Lease) {
	t.Helper()
	if err := l.Release(within(t, enough)); err != nil {
		t.Fatalf("Release = %v", err)
	}
}

// tried acquires without waiting.
func tried(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	return d.Acquire(within(t, enough), req)
}

// refused checks that a lock is not to be had now.
func refused(t testing.TB, d driver.Driver, req driver.Request, when string) {
	t.Helper()
	if l, err := tried(t, d, req); l != nil || !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("%s, Acquire(%q) for %s = %v, %v, want ErrHeld", when, req.Name, req.Owner, l, err)
	}
}

func renew(t testing.TB, d driver.Driver, l driver.Lease) error {
	t.Helper()
	return d.Renew(within(t, enough), []driver.Lease{l})[0].Err
}

func token(l driver.Lease) uint64 { return l.Grant().Token }

// keysOn returns the keys of a node but what it knows of itself.
func keysOn(t testing.TB, n *redistest.Node) []string {
	t.Helper()
	var all []string
	list, _ := n.Must("KEYS", "*").([]any)
	for _, key := range list {
		if name := fmt.Sprint(key); name != "snib.redlock" {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// have waits until all nodes have just these keys, in order, also those that were slower than a majority.
func (c *cluster) have(t testing.TB, keys ...string) {
	t.Helper()
	livetest.Await(t, "keys on all nodes", func() error {
		for i, n := range c.nodes {
			if got := keysOn(t, n); !slices.Equal(got, keys) {
				return fmt.Errorf("node %d has %q, want %q", i, got, keys)
			}
		}
		return nil
	})
}

// nothingLeft checks that the nodes come to have no keys of locks, in less time than these would need to lapse.
func nothingLeft(t testing.TB, nodes ...*redistest.Node) {
	t.Helper()
	livetest.Await(t, "nodes without keys", func() error {
		for i, n := range nodes {
			if left := keysOn(t, n); len(left) > 0 {
				return fmt.Errorf("node %d has %q", i, left)
			}
		}
		return nil
	})
}

// states returns how the nodes stand, in the order of c.nodes.
func (c *cluster) states(t testing.TB) []redlock.NodeState {
	t.Helper()
	all, err := redlock.Examine(within(t, enough), c.servers, c.opts...)
	if err != nil {
		t.Fatalf("Examine = %v", err)
	}
	states := make([]redlock.NodeState, len(c.nodes))
	for i, n := range c.nodes {
		for _, s := range all {
			if s.Address == n.Addr() {
				states[i] = s.State
			}
		}
	}
	return states
}

// stand waits until the nodes stand as they should.
func (c *cluster) stand(t testing.TB, want ...redlock.NodeState) {
	t.Helper()
	livetest.Await(t, "state of the nodes", func() error {
		if got := c.states(t); !slices.Equal(got, want) {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}

// all is a state for each of n nodes.
func all(n int, s redlock.NodeState) []redlock.NodeState {
	return slices.Repeat([]redlock.NodeState{s}, n)
}

// says checks that an error matches another, and what it says.
func says(t testing.TB, what string, err, is error, texts ...string) {
	t.Helper()
	if !errors.Is(err, is) {
		t.Fatalf("%s = %v, want %v", what, err, is)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s = %q, which does not say %q", what, err, text)
		}
	}
	if errors.Is(err, driver.ErrHeld) && errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%s = %v, which matches ErrHeld and ErrUnavailable", what, err)
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("%s = an error with the password", what)
	}
}
