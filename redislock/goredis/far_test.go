package goredis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// A far conn subscribes at a replica, as a client does whose master has become one. It receives
// what is published, but the master does not count it as a subscriber.
type far struct {
	*conn
	replica func(ctx context.Context, channel string) (*redis.Client, error)
}

func (f far) Subscribe(ctx context.Context, channel string, sharded bool, ready func(), message func(string)) error {
	replica, err := f.replica(ctx, channel)
	if err != nil {
		return err
	}
	return (&conn{client: replica}).Subscribe(ctx, channel, sharded, ready, message)
}

// TestFarListener checks that a waiter does not believe that it holds a lock only because a
// message told it to look.
func TestFarListener(t *testing.T) {
	start := func(t *testing.T, c redislock.Conn) *redislock.Driver {
		t.Helper()
		d, err := redislock.NewConn(t.Context(), c, redislock.FailoverGrace(false))
		if err != nil {
			t.Fatalf("NewConn = %v", err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.Sentinel(t)
		master := s.Master()
		var clients []*redis.Client // the master, and its replica
		for _, n := range s.Nodes() {
			client := redis.NewClient(&redis.Options{Addr: n.Addr()})
			t.Cleanup(func() { client.Close() })
			if clients = append(clients, client); n == master && len(clients) > 1 {
				clients[0], clients[1] = clients[1], clients[0]
			}
		}
		near := &conn{client: clients[0]}
		handOver(t, start(t, near), start(t, far{near, func(context.Context, string) (*redis.Client, error) {
			return clients[1], nil
		}}), func() any { return master.Must("GET", "lock") })
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.Cluster(t)
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadOnly: true})
		t.Cleanup(func() { client.Close() })
		near := &conn{client: client, cluster: client}
		handOver(t, start(t, near), start(t, far{near, client.SlaveForKey}), func() any {
			return c.MasterOf(c.SlotOf("lock")).Must("GET", "lock")
		})
	})
}

// handOver makes a wait for b's release, and checks that a then holds the lock in the store as
// well.
func handOver(t *testing.T, b, a *redislock.Driver, stored func() any) {
	ctx := t.Context()
	held, err := b.Acquire(ctx, driver.Request{Name: "lock", ID: "b", TTL: 30 * time.Second})
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	granted := make(chan driver.Lease, 1)
	go func() {
		l, err := a.Acquire(ctx, driver.Request{Name: "lock", ID: "a", TTL: 30 * time.Second})
		if err != nil {
			t.Errorf("Acquire of the waiter = %v", err)
		}
		granted <- l
	}()
	livetest.Await(t, "waiter", func() error {
		if st, err := b.Status(ctx, "lock"); err != nil || len(st.Waiters) != 1 {
			return fmt.Errorf("Status = %+v, %w", st, err)
		}
		return nil
	})
	if err := held.Release(ctx); err != nil {
		t.Fatalf("Release = %v", err)
	}
	l := <-granted
	if l == nil {
		return
	}
	if got := fmt.Sprint(stored()); !strings.Contains(got, `"id":"a"`) {
		t.Errorf("the store says that the lock is held by %s, want a, which believes so", got)
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release of the waiter's lease = %v", err)
	}
}
