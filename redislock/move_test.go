package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestHalfMovedSlot stops the move of a slot half-way: some keys of its locks are on one node,
// and some on the other. Holds go on, and locks that are released meanwhile are free when the
// move is over.
func TestHalfMovedSlot(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, o)
	d1, d2 := open(t, o, redislock.GraceFloor(ttl)), open(t, o, redislock.GraceFloor(ttl))
	names := []string{"job", "{job}2", "{job}3"}
	var held []driver.Lease
	for _, name := range names {
		held = append(held, take(t, d1, request(name, "holder of "+name, ttl)))
	}
	slot := c.SlotOf("job")
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	move.Migrate("snib.m:{"+redislock.TagOf(uint16(slot))+"}", "{job}2", "snib.r::{job}3")

	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		for i, r := range d1.Renew(ctx, held) {
			if r.Err != nil {
				t.Errorf("Renew of %s while its slot is half-way = %v", names[i], r.Err)
			}
		}
		cancel()
	}
	hurried := request("job", "hurried", ttl)
	hurried.NoWait = true
	if l, err := d2.Acquire(t.Context(), hurried); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire with NoWait while the slot is half-way = %v, %v, want ErrUnavailable", l, err)
	}
	released := make(chan error, len(held))
	for _, l := range held {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), enough)
			defer cancel()
			released <- l.Release(ctx)
		}()
	}
	time.Sleep(300 * time.Millisecond) // in which the releases meet the move
	move.Finish()
	for range held {
		if err := <-released; err != nil {
			t.Errorf("Release while the slot is half-way = %v", err)
		}
	}
	for i, name := range names {
		// The move begins a grace period.
		next, _ := granted(t, begin(t, d2, request(name, "next", ttl)), ttl+enough, "who comes after the move")
		if token(next) <= token(held[i]) {
			t.Errorf("%s: token %d after %d", name, token(next), token(held[i]))
		}
		free(t, next)
	}
}

// TestReleaseMeetsMove releases a lock, for which somebody waits, when the move of its slot has
// begun and no key has been moved. The script begins, and fails when it has deleted the lock's
// key: the node takes that for a key that may have been moved.
func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	d1, d2 := open(t, o, redislock.FailoverGrace(false)), open(t, o, redislock.FailoverGrace(false))
	held := take(t, d1, request("job", "holder", ttl))
	waiter := wait(t, d2, request("job", "waiter", ttl), 1)
	slot := c.SlotOf("job")
	c.MasterOf(slot).Must("SET", "snib.g:{"+redislock.TagOf(uint16(slot))+"}", "") // a script begins if it has all its keys
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	released := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	go func() { released <- held.Release(ctx) }()
	livetest.Await(t, "release that has begun", func() error {
		if keys := c.KeysIn(slot); slices.Contains(keys, "job") {
			return fmt.Errorf("the keys are %q", keys)
		}
		return nil
	})
	move.Finish()
	if err := <-released; err != nil {
		t.Errorf("Release while its slot moves = %v", err)
	}
	next, _ := granted(t, waiter, enough, "who waits")
	if token(next) <= token(held) {
		t.Errorf("token %d after %d", token(next), token(held))
	}
	free(t, next)
}

// TestMoveCancelled frees a hold, for which somebody waits, while the move of its slot has begun
// and no key has been moved, and then cancels the move. The script fails when it has freed the
// hold, and its next try does not find the hold any more. The waiter is served all the same, and
// long before it would send its next heartbeat.
func TestMoveCancelled(t *testing.T) {
	t.Parallel()
	const ttl, heartbeatInterval = 30 * time.Second, 5 * time.Second
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	d1, d2 := open(t, o, redislock.FailoverGrace(false)), open(t, o, redislock.FailoverGrace(false))
	release := func(ctx context.Context, l driver.Lease, _ driver.Request) error { return l.Release(ctx) }
	tests := []struct {
		name  string
		slots int
		free  func(context.Context, driver.Lease, driver.Request) error
	}{
		{"Release", 0, release},
		{"ReleaseSlot", 2, release},
		{"Break", 0, func(ctx context.Context, l driver.Lease, req driver.Request) error {
			return d1.Break(ctx, req.Name, req.Owner, token(l))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := func(owner string) driver.Request {
				r := request(tt.name, owner, ttl)
				r.Slots = tt.slots
				return r
			}
			held := take(t, d1, req("holder"))
			if tt.slots > 0 {
				take(t, d1, req("other"))
			}
			slot := c.SlotOf(tt.name)
			c.MasterOf(slot).Must("SET", "snib.g:{"+redislock.TagOf(uint16(slot))+"}", "") // a script begins if it has all its keys
			stopLateness := livetest.Lateness()
			waiter := wait(t, d2, req("waiter"), 1)
			keys := c.KeysIn(slot)
			move := c.BeginMove(slot, c.MasterOtherThan(slot))
			freed := make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), enough)
			defer cancel()
			go func() { freed <- tt.free(ctx, held, req("holder")) }()
			livetest.Await(t, "script that has begun", func() error {
				if left := c.KeysIn(slot); len(left) == len(keys) {
					return fmt.Errorf("the keys are %q", left)
				}
				return nil
			})
			move.Cancel()
			if err := <-freed; err != nil {
				t.Errorf("%s while the slot moves = %v", tt.name, err)
			}
			next, took := granted(t, waiter, enough, "who waits")
			if late := stopLateness(); took > heartbeatInterval/2+late {
				t.Errorf("the waiter got the lock %v after the move, with timers up to %v late; want at most %v", took, late, heartbeatInterval/2)
			}
			free(t, next)
		})
	}
}
