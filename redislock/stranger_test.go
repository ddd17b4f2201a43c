package redislock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

// strangers returns the keys that Strangers shows.
func strangers(t *testing.T, d *redislock.Driver, prefix string) []string {
	t.Helper()
	var keys []string
	err := d.Admin().Strangers(t.Context(), prefix, func(s redisadmin.Stranger) bool {
		if s.Library == "" || s.Problem == "" {
			t.Errorf("a stranger of whom nothing is known: %+v", s)
		}
		keys = append(keys, s.Key)
		return true
	})
	if err != nil {
		t.Fatalf("Strangers = %v", err)
	}
	slices.Sort(keys)
	return keys
}

// TestStrangers looks for foreign keys on a single server and in a Cluster, where a script
// takes keys of one slot only.
func TestStrangers(t *testing.T) {
	t.Parallel()
	single := used(t, redistest.Single(t))
	c := redistest.Cluster(t)
	inCluster := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, inCluster)
	for name, o := range map[string]rueidis.ClientOption{"Single": at(single.Addr()), "Cluster": inCluster} {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			client, err := rueidis.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			do := func(command ...string) {
				t.Helper()
				if err := client.Do(t.Context(), client.B().Arbitrary(command[0]).Keys(command[1]).Args(command[2:]...).Build()).Error(); err != nil {
					t.Fatalf("%v: %v", command, err)
				}
			}
			const uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
			var want []string
			for i := range 100 { // in more than one slot, and more than one call
				do("SET", fmt.Sprint("lock:ends:", i), uuid, "PX", "3600000")
				key := fmt.Sprint("lock:left:", i)
				do("SET", key, uuid)
				want = append(want, key)
			}
			do("HSET", "redisson", uuid+":7", "1")
			do("RPUSH", "redisson_lock_queue:{x}", uuid+":7", uuid+":8") // without a time
			do("SET", "binary:lock", "\xff\xfe")
			do("SET", "lock:text", "closed")
			want = append(want, "redisson", "redisson_lock_queue:{x}")
			own := request("lock:ours", uuid, time.Minute)
			take(t, d, own)
			do("PERSIST", "lock:ours")
			slices.Sort(want)
			if got := strangers(t, d, ""); !slices.Equal(got, want) {
				t.Errorf("Strangers = %q, want %q", got, want)
			}
			if got := strangers(t, d, "lock:left:7"); len(got) != 11 {
				t.Errorf("Strangers with a prefix = %q, want 11", got)
			}
			st, err := d.Status(t.Context(), "lock:ours")
			if err != nil || len(st.Holders) != 1 || st.Holders[0].Left != driver.NoExpiry || st.Holders[0].Token == 0 {
				t.Errorf("Status of a hold whose key has lost its end = %+v, %v", st, err)
			}
			n := 0
			err = d.Admin().Strangers(t.Context(), "", func(redisadmin.Stranger) bool { n++; return n < 3 })
			if err != nil || n != 3 {
				t.Errorf("Strangers called yield %d times and = %v, want 3 calls", n, err)
			}
		})
	}
}

// TestListOnce checks that a lock is listed once, however many keys it has, also in a Cluster.
func TestListOnce(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	inCluster := rueidis.ClientOption{InitAddress: c.Addrs()}
	usedCluster(t, c, inCluster)
	for name, o := range map[string]rueidis.ClientOption{"Single": at(used(t, redistest.Single(t)).Addr()), "Cluster": inCluster} {
		t.Run(name, func(t *testing.T) {
			d1, d2 := open(t, o), open(t, o)
			var want []string
			for i := range 1500 { // more than one step of a scan
				req := request(fmt.Sprintf("held %04d", i), "a", time.Hour)
				take(t, d1, req)
				want = append(want, req.Name)
				if i%500 == 0 { // with a queue, too
					req.Owner = "b"
					wait(t, d2, req, 1)
				}
			}
			got := make(map[string]int)
			err := d2.List(t.Context(), "held ", func(st driver.Status) bool { got[st.Name]++; return true })
			if err != nil || len(got) != len(want) {
				t.Errorf("List shows %d locks and = %v, want %d", len(got), err, len(want))
			}
			for name, n := range got {
				if n != 1 {
					t.Errorf("List shows %q %d times", name, n)
				}
			}
		})
	}
}

// TestServers checks what a server reports about itself, and the comparison of clocks.
func TestServers(t *testing.T) {
	t.Parallel()
	node := redistest.Single(t, "appendonly yes", "appendfsync no")
	all, err := open(t, at(node.Addr())).Admin().Servers(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("Servers = %+v, %v", all, err)
	}
	s := all[0]
	if s.Info["redis_version"] == "" || s.Info["run_id"] == "" || s.Settings["appendonly"] != "yes" || s.Settings["appendfsync"] != "no" {
		t.Errorf("Info has %d fields, Settings = %v", len(s.Info), s.Settings)
	}
	// There is one clock, which TIME reads within the round trip.
	if s.RoundTrip <= 0 || s.Ahead.Abs() > s.RoundTrip+time.Millisecond {
		t.Errorf("the server's clock is %v ahead, with a round trip of %v", s.Ahead, s.RoundTrip)
	}
}
