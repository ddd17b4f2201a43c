package etcdlock_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

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
			open := func() *etcdlock.Driver {
				d := newDriver(t, dial(t, nil, cluster.Addrs()...), etcdlock.Timeout(time.Minute))
				t.Cleanup(func() { d.Close() })
				return d
			}
			const many = 6 // so that each member has some of them
			var holders []*etcdlock.Driver
			var held []driver.Lease
			var waits []*livetest.Waiter
			for i := range many {
				holders = append(holders, open())
				held = append(held, acquire(t, holders[i], request(fmt.Sprint("name ", i), "holder")))
				waits = append(waits, livetest.Waiting(t, open(), request(fmt.Sprint("name ", i), "waiter")))
			}
			tt.fail(cluster)
			failed := driver.Now()
			for i, l := range held {
				livetest.Await(t, "keep-alive by a member that is well", func() error {
					r := holders[i].Renew(t.Context(), []driver.Lease{l})[0]
					if errors.Is(r.Err, driver.ErrLost) {
						t.Fatalf("a hold was lost as a member failed: %v", r.Err)
					}
					if r.Err == nil && r.Start.Before(failed) {
						return errors.New("the lease counts from before the failure")
					}
					return r.Err
				})
			}
			for i, l := range held {
				release(t, l)
				next := waits[i].Get(t)
				if got := next.Grant().Token; got <= l.Grant().Token {
					t.Errorf("token %d after %d", got, l.Grant().Token)
				}
			}
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
	livetest.Await(t, "renewal after a restart", func() error { return d.Renew(t.Context(), []driver.Lease{l})[0].Err })
	release(t, l)
	release(t, w.Get(t))
}
