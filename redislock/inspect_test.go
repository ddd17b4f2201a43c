package redislock_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestStatusOfStrangers inspects foreign keys.
func TestStatusOfStrangers(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("SET", "job", "someone", "PX", 600_000)
	st := status(t, d, "job")
	if len(st.Holders) != 1 || st.Holders[0].ID != "someone" || st.Holders[0].Token != 0 || st.Holders[0].Left > 10*time.Minute || st.Holders[0].Left < 9*time.Minute {
		t.Errorf("Status = %+v", st)
	}
	if err := d.Break(t.Context(), "job", "someone else"); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break with another id = %v", err)
	}
	if err := d.Break(t.Context(), "job", "someone"); err != nil {
		t.Errorf("Break = %v", err)
	}
	nothingLeft(t, node)
}

// binary is a value as clients of SET NX write it that use random bytes: no UTF-8, and with
// characters that JSON and terminals take for something else.
const binary = "\xff\xfe\x00\x1b[31m\"\\ \n\x7f\u00e9\xc3"

// TestBreakBinary breaks a foreign hold whose value is no text: what Status shows is the value,
// byte by byte.
func TestBreakBinary(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("SET", "job", binary, "PX", 600_000)
	st := status(t, d, "job")
	if len(st.Holders) != 1 || st.Holders[0].ID != binary || st.Holders[0].Token != 0 {
		t.Fatalf("Status = %q, want the id %q", st.Holders, binary)
	}
	foreign := false
	err := d.Admin().Foreign(t.Context(), "job", func(listed driver.Status) bool {
		foreign = true
		if !equalButLeft(listed, st) {
			t.Errorf("Foreign shows %+v, and Status %+v", listed, st)
		}
		return true
	})
	if err != nil || !foreign {
		t.Errorf("Foreign = %v, shown: %t", err, foreign)
	}
	if err := d.Break(t.Context(), "job", strings.ToValidUTF8(binary, "\ufffd")); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break of the value as text = %v, want ErrLost", err)
	}
	if err := d.Break(t.Context(), "job", st.Holders[0].ID); err != nil {
		t.Errorf("Break = %v", err)
	}
	nothingLeft(t, node)
}

// redissonThread is a thread as Redisson names it in a hash.
const redissonThread = "8c8ffe61-5bd3-4d78-a5c0-2d2386af488e:7"

// TestStatusOfOtherKeys inspects keys as Redisson writes them, and others that are no strings. None
// of them is free, because nobody can acquire them.
func TestStatusOfOtherKeys(t *testing.T) {
	t.Parallel()
	const other, hex, uuid = "c349ce48-4934-450c-96ec-c5b5bd51f72c:22", "0f2cfae04a2a4f6c8dd9b2f2c3b6a111", "f47ac10b-58cc-4372-a567-0e02b2c3d479"
	const endless = driver.NoExpiry
	redisson := func(id, as string, count int) driver.Holding {
		return driver.Holding{ID: id, Foreign: "Redisson" + as, Count: count, Left: endless}
	}
	key := func(foreign string) []driver.Holding { return []driver.Holding{{Left: endless, Foreign: foreign}} }
	value := func(value, foreign string) []driver.Holding {
		return []driver.Holding{{ID: value, Left: endless, Foreign: foreign}}
	}
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	for _, tt := range []struct {
		name    string
		command []any
		want    []driver.Holding
		shared  bool
	}{
		{name: "Redisson", command: []any{"HSET", "k", redissonThread, 2}, want: []driver.Holding{redisson(redissonThread, "", 2)}},
		{
			name: "Readers", command: []any{"HSET", "k", "mode", "read", other, 1, redissonThread, 2}, shared: true,
			want: []driver.Holding{redisson(redissonThread, ", as a reader", 2), redisson(other, ", as a reader", 1)},
		},
		{
			name: "WriterWhoReads", command: []any{"HSET", "k", "mode", "write", redissonThread, 1, redissonThread + ":write", 3},
			want: []driver.Holding{redisson(redissonThread+":write", ", as a writer", 3), redisson(redissonThread, ", as a reader", 1)},
		},
		{name: "NoCount", command: []any{"HSET", "k", redissonThread, "x"}, want: key("a Redis hash of unknown use")},
		{name: "OtherField", command: []any{"HSET", "k", redissonThread, 1, "name", "x"}, want: key("a Redis hash of unknown use")},
		{name: "BigHash", command: append([]any{"HSET", "k"}, manyFields(65)...), want: key("a Redis hash of unknown use")},
		{name: "List", command: []any{"RPUSH", "k", "a"}, want: key("a Redis list of unknown use")},
		{name: "Set", command: []any{"SADD", "k", "a"}, want: key("a Redis set of unknown use")},
		{name: "SortedSet", command: []any{"ZADD", "k", 1, "a"}, want: key("a Redis sorted set of unknown use")},
		{name: "Stream", command: []any{"XADD", "k", "*", "a", "b"}, want: key("a Redis stream of unknown use")},
		{name: "Number", command: []any{"SET", "k", 1}, want: value("1", "a client of SET NX, or a semaphore of Redisson (RSemaphore), which keeps a number")},
		{
			name: "Milliseconds", command: []any{"SET", "k", "1795428456656"},
			want: value("1795428456656", "a client of SETNX and GETSET, until 2026-11-23T10:07:36Z"),
		},
		{
			name: "Seconds", command: []any{"SET", "k", "1795428456.5"},
			want: value("1795428456.5", "a client of SETNX and GETSET, until 2026-11-23T10:07:36Z"),
		},
		{name: "Hex", command: []any{"SET", "k", hex}, want: value(hex, "a client of SET NX with 16 bytes in hex, such as redis-py or node-redlock")},
		{name: "UUID", command: []any{"SET", "k", uuid}, want: value(uuid, "a client of SET NX with a UUID, such as redlock-rb or Spring")},
		{name: "Text", command: []any{"SET", "k", "closed"}, want: value("closed", "")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node.Must("DEL", "k")
			node.Must(tt.command...)
			if st := status(t, d, "k"); !reflect.DeepEqual(st.Holders, tt.want) || st.Shared != tt.shared {
				t.Errorf("Status = %+v, want %+v, shared %t", st, tt.want, tt.shared)
			}
			node.Must("PEXPIRE", "k", 600_000)
			for _, h := range status(t, d, "k").Holders {
				if h.Left > 10*time.Minute || h.Left < 9*time.Minute {
					t.Errorf("of 10 minutes, %v are left", h.Left)
				}
			}
			if tt.want[0].ID == "" {
				if err := d.Break(t.Context(), "k", ""); !errors.Is(err, driver.ErrLost) {
					t.Errorf("Break = %v, want ErrLost", err)
				}
				if node.Must("EXISTS", "k") != int64(1) {
					t.Error("Break has deleted what may be no lock")
				}
			}
		})
	}
}

// manyFields returns the fields of a hash with n threads of Redisson.
func manyFields(n int) (all []any) {
	for i := range n {
		all = append(all, fmt.Sprint(redissonThread, i), 1)
	}
	return all
}

// commander returns a function that sends a command whose first argument is a key.
func commander(t *testing.T, o rueidis.ClientOption) func(command ...string) {
	t.Helper()
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return func(command ...string) {
		t.Helper()
		if err := client.Do(t.Context(),
			client.B().Arbitrary(command[0]).Keys(command[1]).Args(command[2:]...).Build()).Error(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

func list(t testing.TB, in driver.Inspector, prefix string) []string {
	t.Helper()
	var names []string
	if err := in.List(t.Context(), prefix, func(st driver.Status) bool {
		names = append(names, st.Name)
		return true
	}); err != nil {
		t.Fatalf("List(%q) = %v", prefix, err)
	}
	return names
}

// A forgetful client of a Cluster does not know one of the nodes.
type forgetful struct {
	rueidis.Client
	of string
}

func (f forgetful) Nodes() map[string]rueidis.Client {
	nodes := maps.Clone(f.Client.Nodes())
	delete(nodes, f.of)
	return nodes
}

// TestUnknownMaster checks that a list of only some of the locks is not reported as complete,
// and that the settings of all servers are checked.
func TestUnknownMaster(t *testing.T) {
	t.Parallel()
	c := redistest.Cluster(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	const want = "2 of the Cluster's 3 masters"
	if d, err := redislock.New(t.Context(), forgetful{client, c.Addrs()[0]}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("New = %v, %v, want something about %s", d, err, want)
	}
	d, err := redislock.New(t.Context(), forgetful{client, c.Addrs()[3]})
	if err != nil {
		t.Fatalf("New by a client that does not know a replica = %v", err)
	}
	d.Close()
}

// TestListAmongMany lists 100 locks among a million other keys, without holding up the server.
func TestListAmongMany(t *testing.T) {
	node := used(t, redistest.Single(t, "enable-debug-command yes"))
	node.Must("DEBUG", "POPULATE", 1_000_000, "other", 1)
	node.Must("DEBUG", "POPULATE", 1000, "snib.x", 1)
	d := open(t, at(node.Addr()))
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("lock[*]%03d", i)
		take(t, d, request(name, "owner", time.Minute))
		want = append(want, name)
	}
	for _, name := range []string{"lock[*", "lock*", "lock", "lockx*]1", "LOCK[*]1", "no lock[*]1", "{no}lock[*]1"} {
		take(t, d, request(name, "owner", time.Minute))
	}
	before := node.Calls()
	got := list(t, d, "lock[*]")
	if slices.Sort(got); !slices.Equal(got, want) { // a scan has no order
		t.Errorf("List = %d names: %q", len(got), got)
	}
	after := node.Calls()
	if scans := after["scan"] - before["scan"]; after["keys"] != before["keys"] || scans < 1000 {
		t.Errorf("List called KEYS %d times and SCAN %d times, want that it examines 1000 keys at a time at most",
			after["keys"]-before["keys"], scans)
	}

	// List ends when yield returns false.
	n := 0
	if err := d.List(t.Context(), "lock", func(st driver.Status) bool {
		n++
		return strings.HasPrefix(st.Name, "lock") && n < 3
	}); err != nil || n != 3 {
		t.Errorf("List that is told to end after 3 = %v, after %d", err, n)
	}
}
