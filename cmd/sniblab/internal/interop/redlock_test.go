package interop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpools "github.com/go-redsync/redsync/v4/redis"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
)

// TestRedlockAndRedsync has redsync and snib use locks on the same five servers. Then it kills
// one of the servers, and later a second one.
func TestRedlockAndRedsync(t *testing.T) {
	var nodes []*redistest.Node
	var servers []rueidis.ClientOption
	var pools []redsyncpools.Pool
	for range 5 {
		n := redistest.Single(t)
		nodes = append(nodes, n)
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{n.Addr()}})
		pools = append(pools, redsyncpool.NewPool(dial(t, n.Addr())))
	}
	if err := redlock.Admin(servers).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := redlock.Open(t.Context(), servers)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := snib.New(d, snib.TTL(longTTL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	theirs := redsyncClient{redsync.New(pools...)}
	excludes := func(t *testing.T, name string) {
		t.Helper()
		lock := acquire(t, ours, name)
		if _, err := theirs.try(name, longTTL); !errors.Is(err, errRefused) {
			t.Errorf("redsync takes what snib holds: %v", err)
		}
		if err := lock.Release(); err != nil {
			t.Errorf("Release = %v", err)
		}
		var h hold
		livetest.Await(t, "lock for redsync after the release", func() (err error) { h, err = theirs.try(name, longTTL); return err })
		if lock, err := ours.TryAcquire(t.Context(), name); !errors.Is(err, snib.ErrHeld) {
			t.Errorf("snib takes what redsync holds: %v, %v", lock, err)
		}
		released := make(chan error, 1)
		go func() { released <- h.release() }()
		next, err := ours.Acquire(t.Context(), name) // redsync does not announce its release
		if err != nil {
			t.Fatalf("Acquire after redsync's release = %v", err)
		}
		if err := <-released; err != nil {
			t.Errorf("redsync's release = %v", err)
		}
		if next.Token() <= lock.Token() {
			t.Errorf("token %d after %d, with redsync in between", next.Token(), lock.Token())
		}
		if err := next.Release(); err != nil {
			t.Errorf("Release = %v", err)
		}
	}
	t.Run("Whole", func(t *testing.T) { excludes(t, "whole") })
	t.Run("Expiry", func(t *testing.T) {
		if _, err := theirs.try("expiry", shortTTL); err != nil {
			t.Fatal(err)
		}
		began, machine := time.Now(), livetest.Lateness(t)
		lock, err := ours.Acquire(t.Context(), "expiry")
		if err != nil {
			t.Fatal(err)
		}
		if took, late := time.Since(began), machine(); took > shortTTL+maxDelay+slack(late) {
			t.Errorf("granted %v after redsync took it for %v, on a machine that was late by %v", took, shortTTL, late)
		}
		if err := lock.Release(); err != nil {
			t.Errorf("Release = %v", err)
		}
	})
	t.Run("Looks", func(t *testing.T) {
		h, err := theirs.try("looks", longTTL)
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan error, 1)
		go func() {
			lock, err := ours.Acquire(t.Context(), "looks")
			if err == nil {
				err = lock.Release()
			}
			granted <- err
		}()
		// A waiter that looks every 5 s sends seven scripts in the time that Await allows.
		before := scripts(nodes[0])
		livetest.Await(t, "20 scripts of a waiter while redsync holds the lock", func() error {
			if n := scripts(nodes[0]) - before; n < 20 {
				return fmt.Errorf("there were %d", n)
			}
			return nil
		})
		if len(granted) > 0 {
			t.Errorf("snib takes what redsync holds: %v", <-granted)
			return
		}
		if err := h.release(); err != nil {
			t.Errorf("redsync's release = %v", err)
		}
		if err := <-granted; err != nil {
			t.Errorf("Acquire, and Release, after redsync's release = %v", err)
		}
	})
	nodes[0].Kill()
	t.Run("OneGone", func(t *testing.T) { excludes(t, "one gone") })
	nodes[4].Kill()
	t.Run("TwoGone", func(t *testing.T) { excludes(t, "two gone") })
}

// scripts returns how many calls of scripts a node has served.
func scripts(n *redistest.Node) int {
	calls := n.Calls()
	return calls["evalsha"] + calls["eval"]
}
