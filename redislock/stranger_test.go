package redislock_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
		if s.Library == "" && !s.Unsure || s.Problem == "" || s.Unsure && prefix == "" {
			t.Errorf("Strangers(%q) shows %+v", prefix, s)
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
	for name, o := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			d := open(t, o)
			do := commander(t, o)
			const uuid = "f47ac10b-58cc-4372-a567-0e02b2c3d479"
			var want []string
			for i := range 100 { // in more than one slot, and more than one call
				do("SET", fmt.Sprint("lock:ends:", i), uuid, "PX", "3600000")
				key := fmt.Sprint("lock:left:", i)
				do("SET", key, uuid)
				want = append(want, key)
			}
			do("HSET", "redisson", uuid+":7", "1")
			do("SET", "binary:lock", "\xff\xfe")
			do("SET", "lock:text", "closed")
			want = append(want, "redisson")
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
			if got := strangers(t, d, "lock:text"); !slices.Equal(got, []string{"lock:text"}) {
				t.Errorf("Strangers with a prefix = %q, want the key of unknown format", got)
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

// plantUnderPrefix writes locks of other libraries, with and without an end, and other keys. It
// returns those without an end that are locks if "job:" is a prefix of locks only.
func plantUnderPrefix(t *testing.T, node *redistest.Node, d *redislock.Driver) (endless []string) {
	t.Helper()
	const uuid, ended, later = "f47ac10b-58cc-4372-a567-0e02b2c3d479", -time.Minute, 48 * time.Hour
	ms := func(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }
	for key, value := range map[string]any{
		"job:setnx": 1, "job:text": "closed", "job:binary": "\xff\xfe", "job:long": strings.Repeat("x", 513),
		"job:uuid": uuid,
		"job:over": ms(ended), "job:over s": ms(ended) / 1000, "job:far": ms(later),
	} {
		node.Must("SETNX", key, value)
		endless = append(endless, key)
	}
	node.Must("HSET", "job:redisson", redissonThread, 1)
	node.Must("HSET", "job:hash", "me", 1)
	endless = append(endless, "job:redisson", "job:hash")
	node.Must("SET", "job:until", ms(time.Hour)) // the client may be alive
	node.Must("SET", "job:ends", 1, "PX", 3_600_000)
	node.Must("HSET", "job:redisson ends", redissonThread, 1)
	node.Must("PEXPIRE", "job:redisson ends", 3_600_000)
	node.Must("RPUSH", "job:list", "a")
	node.Must("ZADD", "job:zset", 1, "a")
	for key, value := range map[string]string{
		"redisson_lock_token:{job:redisson}": "7", "redisson_unlock_latch:{job:redisson}:0f2c": "1",
		"{job:redisson}:" + redissonThread + ":rwlock_timeout:1": "1",
	} {
		node.Must("SET", key, value)
	}
	for _, mode := range modes {
		take(t, d, mode.as(request("job:"+mode.name, "job:owner", time.Minute)))
	}
	slices.Sort(endless)
	return endless
}

// TestStrangersUnderPrefix checks that the named prefix makes each endless string and hash a lock,
// whatever it contains, and that those which may be none are marked.
func TestStrangersUnderPrefix(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	want := plantUnderPrefix(t, node, d)
	if got := strangers(t, d, "job:"); !slices.Equal(got, want) {
		t.Errorf("Strangers = %q, want %q", got, want)
	}
	if got := strangers(t, d, ""); !slices.Equal(got, []string{"job:redisson"}) {
		t.Errorf("Strangers without a prefix = %q, want only the one that is certainly a lock", got)
	}
	for _, prefix := range []string{"redisson_", "{job:"} {
		if got := strangers(t, d, prefix); len(got) > 0 {
			t.Errorf("Strangers = %q, which Redisson keeps beside a lock", got)
		}
	}
	err := d.Admin().Strangers(t.Context(), "job:", func(s redisadmin.Stranger) bool {
		known := s.Key == "job:uuid" || s.Key == "job:redisson"
		if s.Unsure == known {
			t.Errorf("Unsure of %s = %t", s.Key, s.Unsure)
		}
		return true
	})
	if err != nil {
		t.Errorf("Strangers = %v", err)
	}
}

// TestForeign checks that the locks of other libraries are listed, live or endless, and no others.
func TestForeign(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	all := append(plantUnderPrefix(t, node, d), "job:until", "job:ends", "job:redisson ends")
	slices.Sort(all)
	for prefix, want := range map[string][]string{
		"job:":          all,
		"job:redisson":  {"job:redisson", "job:redisson ends"},
		"":              {"job:redisson", "job:redisson ends"},
		"job:Exclusive": nil,
	} {
		var got []string
		err := d.Admin().Foreign(t.Context(), prefix, func(st driver.Status) bool {
			got = append(got, st.Name)
			long := st.Name == "job:long" // its value is not read
			if direct := status(t, d, st.Name); !long && !equalButLeft(st, direct) {
				t.Errorf("Foreign shows %+v, and Status %+v", st, direct)
			}
			return true
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Foreign(%q) = %q, %v, want %q", prefix, got, err, want)
		}
	}
	n := 0
	if err := d.Admin().Foreign(t.Context(), "job:", func(driver.Status) bool { n++; return n < 3 }); err != nil ||
		n != 3 {
		t.Errorf("Foreign called yield %d times and = %v, want 3 calls", n, err)
	}
}

// equalButLeft compares what two readings showed of a lock.
func equalButLeft(a, b driver.Status) bool {
	for _, st := range []*driver.Status{&a, &b} {
		st.Holders = slices.Clone(st.Holders)
		for i := range st.Holders {
			st.Holders[i].Left = min(st.Holders[i].Left, time.Minute)
		}
	}
	return reflect.DeepEqual(a, b)
}

// TestListOnce checks that a lock is listed once, however many keys it has, also in a Cluster.
func TestListOnce(t *testing.T) {
	t.Parallel()
	for name, o := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			d1, d2 := open(t, o), open(t, o)
			var want []string
			for i := range 1500 { // more than one step of a scan
				req := request(fmt.Sprintf("held %04d", i), "a", time.Hour)
				take(t, d1, req)
				want = append(want, req.Name)
				if i%500 == 0 { // with a queue, too
					req.ID = "b"
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
	if s.Info["redis_version"] == "" || s.Info["run_id"] == "" || s.Settings["appendonly"] != "yes" ||
		s.Settings["appendfsync"] != "no" {
		t.Errorf("Info has %d fields, Settings = %v", len(s.Info), s.Settings)
	}
	// There is one clock, which TIME reads within the round trip.
	if s.RoundTrip <= 0 || s.Ahead.Abs() > s.RoundTrip+time.Millisecond {
		t.Errorf("the server's clock is %v ahead, with a round trip of %v", s.Ahead, s.RoundTrip)
	}
}
