package redistest

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
)

// HalfMovedSlot stops the move of a slot half-way: some keys of its locks are on one node, and
// some on the other. Holds go on, and locks that are released meanwhile are free when the move is
// over, after a grace period of up to ttl. The drivers stand for two processes.
func HalfMovedSlot(t *testing.T, c *ClusterSetup, ttl time.Duration, d1, d2 driver.Driver) {
	request := func(name, id string) driver.Request {
		return driver.Request{Name: name, ID: id, TTL: ttl}
	}
	names := []string{"job", "{job}2", "{job}3"}
	var held []driver.Lease
	for _, name := range names {
		held = append(held, livetest.Acquire(t, d1, request(name, "holder of "+name)))
	}
	slot := c.SlotOf("job")
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	move.Migrate("snib.m:"+tagOf(t, c, slot), "{job}2")

	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		for i, r := range d1.Renew(ctx, held) {
			livetest.Want(t, r.Err, nil, "Renew of %s while its slot is half-way", names[i])
		}
		cancel()
	}
	hurried := request("job", "hurried")
	hurried.NoWait = true
	if l, err := d2.Acquire(t.Context(), hurried); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire with NoWait while the slot is half-way = %v, %v, want ErrUnavailable", l, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	released := make(chan error, len(held))
	for _, l := range held {
		go func() { released <- l.Release(ctx) }()
	}
	time.Sleep(300 * time.Millisecond) // in which the releases meet the move
	move.Finish()
	for range held {
		livetest.Want(t, <-released, nil, "Release while the slot is half-way")
	}
	for i, name := range names {
		ctx, cancel := context.WithTimeout(t.Context(), ttl+livetest.Patience)
		next, err := d2.Acquire(ctx, request(name, "next"))
		livetest.Must(t, err, "Acquire of %q after the move", name)
		mustFollow(ctx, t, held[i], next)
		cancel()
	}
}

// ReleaseMeetsMove releases a lock, for which somebody waits, when the move of its slot has begun
// and no key has been moved. The script begins, and fails when it has deleted the lock's key: the
// node takes that for a key that may have been moved. The drivers stand for two processes; d1 must
// release by a script that deletes the key before it grants the lock again.
func ReleaseMeetsMove(t *testing.T, c *ClusterSetup, ttl time.Duration, d1 driver.Driver, d2 interface {
	driver.Driver
},
) {
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	held := livetest.Acquire(t, d1, driver.Request{Name: "job", ID: "holder", TTL: ttl})
	waiter := livetest.Waiting(t, d2, driver.Request{Name: "job", ID: "waiter", TTL: ttl})
	slot := c.SlotOf("job")
	c.MasterOf(slot).Must("SET", "snib.g:"+tagOf(t, c, slot), "") // a script begins if it has all its keys
	c.MasterOf(slot).Must("HSET", "snib.r:{job}", "no", "grant")
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	livetest.Await(t, "release that has begun", func() error {
		if keys := c.KeysIn(slot); slices.Contains(keys, "job") {
			return fmt.Errorf("the keys are %q", keys)
		}
		return nil
	})
	move.Finish()
	livetest.Want(t, <-released, nil, "Release while its slot moves")
	mustFollow(ctx, t, held, waiter.Get(t))
}

// tagOf returns the hash tag that redislock uses for a slot, which it has used before.
func tagOf(t *testing.T, c *ClusterSetup, slot int) string {
	t.Helper()
	keys := c.KeysIn(slot)
	for _, key := range keys {
		if tag, ok := strings.CutPrefix(key, "snib.m:"); ok {
			return tag
		}
	}
	t.Fatalf("slot %d has only the keys %q", slot, keys)
	return ""
}

// mustFollow checks that the lease next has a greater token than the last one, and releases it.
func mustFollow(ctx context.Context, t *testing.T, last, next driver.Lease) {
	t.Helper()
	if got, before := next.Grant().Token, last.Grant().Token; got <= before {
		t.Errorf("token %d after %d", got, before)
	}
	livetest.Want(t, next.Release(ctx), nil, "Release of the next lease")
}
