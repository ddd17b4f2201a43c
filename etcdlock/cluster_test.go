package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// failures are the failures of one member of three.
var failures = []struct {
	name string
	fail func(*etcdtest.ClusterSetup)
}{
	{"FollowerKilled", func(c *etcdtest.ClusterSetup) { c.Follower().Kill() }},
	{"LeaderKilled", func(c *etcdtest.ClusterSetup) { c.Leader().Kill() }},
	{"MinorityHung", func(c *etcdtest.ClusterSetup) { c.Follower().Hang() }},
}

// TestConformanceFailed runs the suite while one member of three has failed.
func TestConformanceFailed(t *testing.T) {
	livetest.Long(t)
	for _, tt := range failures {
		t.Run(tt.name, func(t *testing.T) {
			cluster := etcdtest.Cluster(t, 3)
			tt.fail(cluster)
			well := cluster.Leader()
			i := slices.Index(cluster.Members, well)
			servers := slices.Clone(cluster.Members)
			// The process to be killed uses the first one.
			servers[0], servers[i] = servers[i], servers[0]
			h := harness(servers, nil)
			drivertest.Run(t, h)
		})
	}
}

// TestMemberFails has a member fail under holders and waiters: nobody loses a lock, and nobody
// waits for ever.
func TestMemberFails(t *testing.T) {
	t.Parallel()
	more := append(slices.Clone(failures), struct {
		name string
		fail func(*etcdtest.ClusterSetup)
	}{"LeaderHung", func(c *etcdtest.ClusterSetup) { c.Leader().Hang() }})
	for _, tt := range more {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cluster := etcdtest.Cluster(t, 3)
			open := func() *snib.Locker {
				locker, err := snib.New(newDriver(t, dial(t, nil, cluster.Addrs()...), etcdlock.Timeout(10*time.Second)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { locker.Close() })
				return locker
			}
			const many = 6 // so that each member has some of them
			var held []*snib.Lock
			waits := make(chan error, many)
			for i := range many {
				name := fmt.Sprint("name ", i)
				lock, err := open().Acquire(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, lock)
				waiter := open()
				go func() {
					next, err := waiter.Acquire(t.Context(), name)
					if err == nil && next.Token() <= lock.Token() {
						err = fmt.Errorf("token %d after %d", next.Token(), lock.Token())
					}
					waits <- err
				}()
			}
			d := newDriver(t, dial(t, nil, cluster.Addrs()...))
			defer d.Close()
			for i := range many {
				livetest.Await(t, "waiter", func() error {
					if st, err := d.Status(t.Context(), fmt.Sprint("name ", i)); err != nil || len(st.Waiters) != 1 {
						return fmt.Errorf("%+v, %w", st, err)
					}
					return nil
				})
			}
			tt.fail(cluster)
			failed := time.Now()
			// A session that was not kept alive would have ended by then.
			timer := time.NewTimer(11 * time.Second)
			defer timer.Stop()
			<-timer.C
			for _, lock := range held {
				if err := lock.Context().Err(); err != nil {
					t.Errorf("a hold was lost as a member failed: %v", context.Cause(lock.Context()))
				}
			}
			for _, lock := range held {
				if err := lock.Release(); err != nil {
					t.Errorf("Release = %v", err)
				}
			}
			released := time.Now()
			for range many {
				select {
				case err := <-waits:
					if err != nil {
						t.Errorf("Acquire of a waiter = %v", err)
					}
				case <-time.After(livetest.Patience):
					t.Fatalf("a waiter is not served %v after the member failed", time.Since(failed))
				}
			}
			t.Logf("the waiters were served within %v", time.Since(released))
		})
	}
}

// TestRestartedUnderWaiter restarts the server and compacts it, so that a watch can't resume at
// its old revision.
func TestRestartedUnderWaiter(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	client := dial(t, server)
	d := newDriver(t, client)
	defer d.Close()
	l := acquire(t, d, request("name", "holder"))
	w := livetest.Waiting(t, d, request("name", "waiter"))
	server.Kill()
	server.Restart()
	server.Ctl("put", "filler", "1")
	server.Ctl("put", "filler", "2")
	got, err := client.Get(t.Context(), "filler")
	if err != nil {
		t.Fatal(err)
	}
	server.Ctl("compact", strconv.FormatInt(got.Header.Revision, 10))
	w.Running(t, "while another holds")
	if err := d.Renew(t.Context(), []driver.Lease{l})[0].Err; err != nil {
		t.Errorf("Renew after a restart = %v", err)
	}
	release(t, l)
	release(t, w.Get(t))
}
