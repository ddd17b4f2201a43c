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
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// testTimeout limits how long a test waits for what must happen soon, and before a lease of a
// minute ends.
const testTimeout = 45 * time.Second

func request(name, id string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: ttl}
}

// within returns a context that ends after d, or with the test.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The functions that all tests of backends share.
var (
	acquire = livetest.Acquire
	release = livetest.Release
)

// tryAcquire acquires without waiting.
func tryAcquire(t testing.TB, d driver.Driver, req driver.Request) (driver.Lease, error) {
	t.Helper()
	req.NoWait = true
	return d.Acquire(within(t, testTimeout), req)
}

func tryRenew(t testing.TB, d driver.Driver, l driver.Lease) error {
	t.Helper()
	return d.Renew(within(t, testTimeout), []driver.Lease{l})[0].Err
}

// renew renews a lease, and repeats that until a majority answers.
func renew(t testing.TB, d driver.Driver, l driver.Lease) error {
	t.Helper()
	return answer(t, func() error { return tryRenew(t, d, l) })
}

// statusOf reads the status of a lock, and repeats that until a majority answers.
func statusOf(t testing.TB, d driver.Driver, name string) (st driver.Status, err error) {
	t.Helper()
	err = answer(t, func() (err error) { st, err = d.Status(within(t, testTimeout), name); return err })
	return st, err
}

// breakHold breaks a hold, and repeats that until a majority answers.
func breakHold(t testing.TB, d driver.Driver, name, id string) error {
	t.Helper()
	again := false
	return answer(t, func() error {
		err := d.Break(within(t, testTimeout), name, id)
		if again && errors.Is(err, driver.ErrLost) {
			return nil // the nodes have carried the first request out
		}
		again = true
		return err
	})
}

// answer repeats a call until a majority answers it in time, which a busy machine may prevent.
func answer(t testing.TB, call func() error) (err error) {
	t.Helper()
	livetest.Await(t, "answer of a majority", func() error {
		if err = call(); errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		return nil
	})
	return err
}

// pass takes a lock for a moment, and returns the token. A busy machine may outlast the lease.
func pass(t testing.TB, d driver.Driver, name, id string) uint64 {
	t.Helper()
	l := acquire(t, d, request(name, id, ttl))
	_ = l.Release(within(t, testTimeout))
	return token(l)
}

func token(l driver.Lease) uint64 { return l.Grant().Token }

// keysOn returns the keys of a node, except that of the node's own state.
func keysOn(t testing.TB, n *redistest.Node) []string {
	t.Helper()
	var keys []string
	list, _ := n.Must("KEYS", "*").([]any)
	for _, key := range list {
		if name := fmt.Sprint(key); name != "snib.redlock" {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	return keys
}

// awaitKeys waits until all nodes, even those slower than a majority, have exactly these keys,
// which are sorted.
func (c *cluster) awaitKeys(t testing.TB, keys ...string) {
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

// awaitNoKeys waits until the nodes have no keys of locks. Its timeout is shorter than
// the keys' TTLs.
func awaitNoKeys(t testing.TB, nodes ...*redistest.Node) {
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

// states returns the states of the nodes, in the order of c.nodes.
func (c *cluster) states(t testing.TB) []redlockadmin.NodeState {
	t.Helper()
	statuses, err := redlock.Admin(c.servers, c.opts...).Examine(within(t, testTimeout))
	if err != nil {
		t.Fatalf("Examine = %v", err)
	}
	states := make([]redlockadmin.NodeState, len(c.nodes))
	for i, n := range c.nodes {
		for _, s := range statuses {
			if s.Address == n.Addr() {
				states[i] = s.State
			}
		}
	}
	return states
}

// awaitStates waits until the nodes have the states in want.
func (c *cluster) awaitStates(t testing.TB, want ...redlockadmin.NodeState) {
	t.Helper()
	livetest.Await(t, "state of the nodes", func() error {
		if got := c.states(t); !slices.Equal(got, want) {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
}

// repeatState returns the same state for each of n nodes.
func repeatState(n int, state redlockadmin.NodeState) []redlockadmin.NodeState {
	return slices.Repeat([]redlockadmin.NodeState{state}, n)
}

// awaitRefusal asks for a lock until the error contains the texts, and returns that error. On a
// busy machine, a node that takes part may miss the time limit of a request, and then counts as
// absent.
func awaitRefusal(t *testing.T, d *redlock.Driver, req driver.Request, texts ...string) (err error) {
	t.Helper()
	livetest.Await(t, fmt.Sprintf("error that says %q", texts), func() error {
		_, err = tryAcquire(t, d, req)
		if err != nil && slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return err
		}
		return nil
	})
	return err
}

// checkError checks that err matches is and contains the texts.
func checkError(t testing.TB, what string, err, is error, texts ...string) {
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
