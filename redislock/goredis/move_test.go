package goredis_test

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
	"github.com/sniblock/snib/redislock"
)

// limit is how long a call may take while a slot moves.
const limit = 15 * time.Second

// TestHalfMovedSlot stops the move of a slot half-way: some keys of its locks are on one node,
// and some on the other. Holds go on, and locks that are released meanwhile are free when the
// move is over.
func TestHalfMovedSlot(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password))
	d1 := open(t, dialCluster(t, c, nil), redislock.FailoverGrace(false))
	d2 := open(t, dialCluster(t, c, nil), redislock.FailoverGrace(false))
	var held []driver.Lease
	names := []string{"job", "{job}2", "{job}3"}
	for _, name := range names {
		l, err := d1.Acquire(t.Context(), request(name, "holder of "+name))
		if err != nil {
			t.Fatalf("Acquire(%q) = %v", name, err)
		}
		held = append(held, l)
	}
	slot := c.SlotOf("job")
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	for _, key := range c.KeysIn(slot) {
		if strings.HasPrefix(key, "snib.m:") || key == "{job}2" || key == "snib.r::{job}3" {
			move.Migrate(key)
		}
	}
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		for i, r := range d1.Renew(ctx, held) {
			if r.Err != nil {
				t.Errorf("Renew of lease %d while its slot is half-way = %v", i, r.Err)
			}
		}
		cancel()
	}
	hurried := request("job", "hurried")
	hurried.NoWait = true
	if l, err := d2.Acquire(t.Context(), hurried); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Acquire with NoWait while the slot is half-way = %v, %v, want ErrUnavailable", l, err)
	}
	released := make(chan error, len(held))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, l := range held {
		go func() { released <- l.Release(ctx) }()
	}
	time.Sleep(300 * time.Millisecond) // in which the releases meet the move
	move.Finish()
	for range held {
		if err := <-released; err != nil {
			t.Errorf("Release while the slot is half-way = %v", err)
		}
	}
	for i, l := range held {
		next, err := d2.Acquire(ctx, request(names[i], "next"))
		if err != nil {
			t.Errorf("Acquire(%q) after the move = %v", names[i], err)
		} else if got, last := next.Grant().Token, l.Grant().Token; got <= last {
			t.Errorf("%s: token %d after %d", names[i], got, last)
		}
	}
}

// TestReleaseMeetsMove releases a lock, for which somebody waits, when the move of its slot has
// begun and no key has been moved. The script begins, and fails when it has deleted the lock's
// key: the node takes that for a key that may have been moved.
func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t, redistest.Password(password))
	d1 := open(t, dialCluster(t, c, nil), redislock.FailoverGrace(false))
	d2 := open(t, dialCluster(t, c, nil), redislock.FailoverGrace(false))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	held, err := d1.Acquire(ctx, request("job", "holder"))
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	granted := make(chan error, 1)
	go func() {
		_, err := d2.Acquire(ctx, request("job", "waiter"))
		granted <- err
	}()
	livetest.Await(t, "waiter", func() error {
		if st, err := d1.Status(ctx, "job"); err != nil || len(st.Waiters) != 1 {
			return fmt.Errorf("Status = %+v, %w", st, err)
		}
		return nil
	})
	slot := c.SlotOf("job")
	for _, key := range c.KeysIn(slot) {
		if tag, ok := strings.CutPrefix(key, "snib.m:"); ok {
			c.MasterOf(slot).Must("SET", "snib.g:"+tag, "") // a script begins if it has all its keys
		}
	}
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
	if err := <-released; err != nil {
		t.Errorf("Release while its slot moves = %v", err)
	}
	if err := <-granted; err != nil {
		t.Errorf("Acquire of the waiter = %v", err)
	}
}
