package redislock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// moveTTL is the TTL of the tests in which a slot moves.
const moveTTL = 10 * time.Second

func TestHalfMovedSlot(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, o, "")
	grace := redislock.GraceFloor(moveTTL) // the move begins a grace period
	redistest.HalfMovedSlot(t, c, moveTTL, open(t, o, grace), open(t, o, grace))
}

func TestReleaseMeetsMove(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	noGrace := redislock.FailoverGrace(false)
	redistest.ReleaseMeetsMove(t, c, moveTTL, open(t, o, noGrace), open(t, o, noGrace))
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
	noGrace := redislock.FailoverGrace(false)
	d1, d2 := open(t, o, noGrace), open(t, o, noGrace)
	release := func(ctx context.Context, l driver.Lease, _ driver.Request) error { return l.Release(ctx) }
	tests := []struct {
		name  string
		slots int
		free  func(context.Context, driver.Lease, driver.Request) error
	}{
		{"Release", 0, release},
		{"ReleaseSlot", 2, release},
		{"Break", 0, func(ctx context.Context, l driver.Lease, req driver.Request) error {
			return d1.Break(ctx, req.Name, l.ID())
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := func(id string) driver.Request {
				r := request(tt.name, id, ttl)
				r.Slots = tt.slots
				return r
			}
			held := take(t, d1, req("holder"))
			if tt.slots > 0 {
				take(t, d1, req("other"))
			}
			slot := c.SlotOf(tt.name)
			// a script begins if it has all its keys
			c.MasterOf(slot).Must("SET", "snib.g:{"+redislock.TagOf(uint16(slot))+"}", "")
			if tt.slots == 0 {
				c.MasterOf(slot).Must("HSET", "snib.r:{"+tt.name+"}", "no", "grant")
			}
			stopLateness := livetest.Lateness(t)
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
			if late := stopLateness(); took > heartbeatInterval/2+10*late {
				t.Errorf("the waiter got the lock %v after the move, with timers up to %v late; want at most %v", took, late,
					heartbeatInterval/2)
			}
			free(t, next)
		})
	}
}

// TestKeptWhileSlotMoves frees the only hold of a semaphore, which MinHold keeps, when the move of
// its slot has begun. To change the hold must not delete its key: the node would take that for one
// that has been moved, and whoever waits would get the lock too early.
func TestKeptWhileSlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	o := rueidis.ClientOption{InitAddress: c.Addrs()}
	d := open(t, o, redislock.FailoverGrace(false))
	req := request("job", "holder", time.Minute)
	req.Slots, req.MinHold = 1, time.Minute
	held := take(t, d, req)
	req.ID = "waiter"
	wait(t, open(t, o, redislock.FailoverGrace(false)), req, 1)
	slot := c.SlotOf("job")
	c.MasterOf(slot).Must("SET", "snib.g:{"+redislock.TagOf(uint16(slot))+"}", "") // a script begins if it has all its keys
	c.MasterOf(slot).Must("PERSIST", "job")                                        // its PTTL is no time to expire in, as in its last millisecond
	move := c.BeginMove(slot, c.MasterOtherThan(slot))
	ctx, cancel := context.WithTimeout(t.Context(), moveTTL)
	defer cancel()
	if err := held.Release(ctx); err != nil {
		t.Errorf("Release while the slot moves = %v", err)
	}
	move.Cancel()
	if st := status(t, d, "job"); len(st.Holders) != 1 || st.Holders[0].Holder.Kind != driver.KindKept {
		t.Errorf("after the release the holders are %+v, want the one that is kept", st.Holders)
	}
}
