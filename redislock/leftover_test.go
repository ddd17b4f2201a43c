package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestNothingLeft uses locks in every way, many times. One key is left, which does not grow.
func TestNothingLeft(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	const ttl = time.Minute
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	proxy := livetest.NewProxy(t, node.Addr())
	l := locker(t, open(t, at(node.Addr())), snib.TTL(ttl))

	var all sync.WaitGroup
	for i := range 60 {
		for _, mode := range modes {
			name := fmt.Sprint(mode.name, i, []string{"", "}", "{tag}", "snib."}[i%4])
			req := func(id string) driver.Request { return mode.as(request(name, id, ttl)) }
			all.Go(func() { // hold, wait, cancel, hand over
				a, err := d1.Acquire(t.Context(), req("a"))
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				gone, next := beginWith(ctx, d2, req("gone")), begin(t, d2, req("next"))
				d1.Renew(t.Context(), []driver.Lease{a})
				if r := <-gone; r.err == nil {
					_ = r.lease.Release(t.Context())
				}
				if err := a.Release(t.Context()); err != nil {
					t.Error(err)
				}
				r := <-next
				if r.err != nil {
					t.Error(r.err)
					return
				}
				if err := r.lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() { // hold for MinHold; break
				short := mode.as(request("kept"+name, "a", ttl))
				short.MinHold = 2 * time.Second // longer than a busy machine takes to release it
				a, err := d1.Acquire(t.Context(), short)
				if err == nil {
					err = a.Release(t.Context())
				}
				_, err2 := d2.Acquire(t.Context(), mode.as(request("broken"+name, "b", ttl)))
				if err2 == nil {
					err2 = d1.Break(t.Context(), "broken"+name, "b")
				}
				if err != nil || err2 != nil {
					t.Error(err, err2)
				}
			})
			all.Go(func() { // through the core, in turn
				err := l.With(mode.opts...).Do(t.Context(), "core"+name, func(context.Context, *snib.Lock) error { return nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	nothingLeft(t, node)

	// Lost holds: the holder is cut off. Each lock ends after its TTL.
	cut := open(t, at(proxy.Addr()))
	for _, mode := range modes {
		take(t, cut, mode.as(request("lost "+mode.name, "lost", 500*time.Millisecond)))
	}
	proxy.Sever()
	time.Sleep(600 * time.Millisecond) // longer than the TTL
	for _, key := range keys(t, node) {
		left, _ := node.Must("PTTL", key).(int64)
		t.Errorf("the key %q is left of a lost hold, for %d ms", key, left)
	}
	for _, mode := range modes {
		free(t, take(t, d1, mode.as(request("lost "+mode.name, "next", ttl))))
	}
	nothingLeft(t, node)
	if got := node.Must("DBSIZE"); got != int64(1) {
		t.Errorf("DBSIZE = %v, want 1: snib.m", got)
	}
	if got, _ := node.Must("HLEN", "snib.m").(int64); got > 12 {
		t.Errorf("snib.m has %d fields: %v", got, node.Must("HGETALL", "snib.m"))
	}
	if size, _ := node.Must("MEMORY", "USAGE", "snib.m").(int64); size > 1024 {
		t.Errorf("snib.m takes %d bytes after many locks", size)
	}
}

// TestNothingLeftOfKindConflict makes the name a key of another kind during a wait. The request
// does not stay in the queue.
func TestNothingLeftOfKindConflict(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("SET", "job", "a stranger", "PX", 60_000)
	waiter := wait(t, d, request("job", "waiter", time.Minute), 1)
	// A script, so that the waiter can't come in between.
	node.Must("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'something else')", 1, "job")
	select {
	case r := <-waiter:
		if r.err == nil || !strings.Contains(r.err.Error(), "list") {
			t.Errorf("Acquire of a list = %v, %v", r.lease, r.err)
		}
	case <-time.After(enough):
		t.Fatal("the waiter does not notice that the key has become a list")
	}
	if left := keys(t, node); len(left) != 1 || left[0] != "job" {
		t.Errorf("keys = %q, want the list only", left)
	}
}

// TestNothingLeftOfDead kills the holders of locks and their waiters, and makes a replica the
// master. Nobody acquires the locks any more, so nobody passes over the dead: all keys expire,
// as the backend's documentation says.
func TestNothingLeftOfDead(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	master, replica := used(t, redistest.Single(t)), redistest.Single(t)
	follow(t, replica, master)
	d := open(t, at(master.Addr()))
	var dead []*livetest.Child
	for _, mode := range modes {
		req := func(id string) driver.Request { return mode.as(request(mode.name, id, ttl)) }
		for i := range max(1, req("").Slots) {
			p := startChild(t, master.Addr(), req(fmt.Sprint("holder ", i)))
			p.Number("held")
			dead = append(dead, p)
		}
		for i := range 2 {
			waiter := req(fmt.Sprint("waiter ", i))
			waiter.Shared = false
			dead = append(dead, startChild(t, master.Addr(), waiter))
			queued(t, d, mode.name, i+1)
		}
	}
	for _, p := range dead {
		p.Kill()
	}
	master.Must("SET", "last", "it hears of this after all else")
	livetest.Await(t, "replica that has heard of all", func() error {
		if replica.Must("EXISTS", "last") != int64(1) {
			return errors.New("not yet")
		}
		return nil
	})
	replica.Must("REPLICAOF", "NO", "ONE")
	replica.Must("DEL", "last")
	most := map[string]time.Duration{"snib.r:": ttl, "snib.q:": 30 * time.Second}
	left := keys(t, replica)
	for _, key := range left {
		limit := ttl // of the lock itself
		if prefix, _, ok := strings.Cut(key, "{"); ok {
			limit = most[prefix]
		}
		if ms, _ := replica.Must("PTTL", key).(int64); ms == -1 || ms > limit.Milliseconds() {
			t.Errorf("%q of dead processes is kept for %d ms, want %v at most", key, ms, limit)
		}
	}
	// The lock and its queue of each mode, and the grants of two.
	if want := 3*len(modes) - 1; len(left) != want {
		t.Errorf("the keys of dead processes are %q, want %d, or not all is proved", left, want)
	}
}
