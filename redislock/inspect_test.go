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
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// TestStatus inspects locks of all kinds that are held and waited for, and breaks them.
func TestStatus(t *testing.T) {
	t.Parallel()
	const ttl = 20 * time.Second
	node := used(t, redistest.Single(t))
	d1, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	who := driver.Holder{Host: `h"ost☃`, PID: 42, Label: "a\nlabel \x01"}
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			req := func(owner string) driver.Request {
				r := mode.as(request(mode.name+"*?[x]\\", `owner "`+owner, ttl))
				r.Holder = who
				return r
			}
			if st := status(t, d1, req("").Name); len(st.Holders)+len(st.Waiters) != 0 || st.Name != req("").Name {
				t.Errorf("Status of a free lock = %+v", st)
			}
			holds := []driver.Lease{take(t, d1, req("a"))}
			if mode.name != "Exclusive" {
				holds = append(holds, take(t, d2, req("b")))
			}
			writer := req("w")
			writer.Shared = false
			waiter := wait(t, d2, writer, 1)
			time.Sleep(20 * time.Millisecond) // so that the times are not zero
			st := status(t, d1, req("").Name)
			if st.Shared != req("").Shared || st.Slots != req("").Slots || len(st.Holders) != len(holds) {
				t.Fatalf("Status = %+v, want %d holders", st, len(holds))
			}
			for i, h := range st.Holders {
				want := driver.Holding{Owner: `owner "` + string(rune('a'+i)), Token: token(holds[i]), Holder: who, Held: h.Held, Left: h.Left}
				if !reflect.DeepEqual(h, want) || h.Held < 20*time.Millisecond || h.Held > 5*time.Second || h.Left > ttl || h.Left < ttl-5*time.Second {
					t.Errorf("holder %d = %+v, want %+v", i, h, want)
				}
			}
			w := st.Waiters[0]
			if w.Owner != writer.Owner || w.Holder != who || w.Shared || w.Waited < 20*time.Millisecond || w.Waited > 5*time.Second {
				t.Errorf("waiter = %+v", w)
			}
			if got := list(t, d2, mode.name+"*?["); !slices.Equal(got, []string{req("").Name}) {
				t.Errorf("List = %q", got)
			}

			owner := st.Holders[0].Owner
			for what, err := range map[string]error{
				"another token": d2.Break(t.Context(), req("").Name, owner, token(holds[0])+1),
				"another owner": d2.Break(t.Context(), req("").Name, "nobody", token(holds[0])),
				"no token":      d2.Break(t.Context(), req("").Name, owner, 0),
			} {
				if !errors.Is(err, driver.ErrLost) {
					t.Errorf("Break with %s = %v, want ErrLost", what, err)
				}
			}
			for _, l := range holds {
				if err := renew(t, d1, l); err != nil && l == holds[0] {
					t.Errorf("Renew after what did not break it = %v", err)
				}
			}
			for i, h := range st.Holders {
				if err := d2.Break(t.Context(), req("").Name, h.Owner, h.Token); err != nil {
					t.Errorf("Break of holder %d = %v", i, err)
				}
			}
			l, _ := granted(t, waiter, enough, "the waiter behind what was broken")
			if err := renew(t, d1, holds[0]); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew of what was broken = %v, want ErrLost", err)
			}
			if err := d1.Break(t.Context(), req("").Name, owner, token(holds[0])); !errors.Is(err, driver.ErrLost) {
				t.Errorf("Break of what was broken = %v, want ErrLost", err)
			}
			free(t, l)
		})
	}
	nothingLeft(t, node)
}

// TestStatusOfStrangers inspects foreign keys.
func TestStatusOfStrangers(t *testing.T) {
	t.Parallel()
	node := used(t, redistest.Single(t))
	d := open(t, at(node.Addr()))
	node.Must("SET", "job", "someone", "PX", 10_000)
	st := status(t, d, "job")
	if len(st.Holders) != 1 || st.Holders[0].Owner != "someone" || st.Holders[0].Token != 0 || st.Holders[0].Left > 10*time.Second || st.Holders[0].Left < 5*time.Second {
		t.Errorf("Status = %+v", st)
	}
	if err := d.Break(t.Context(), "job", "someone else", 0); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Break with another owner = %v", err)
	}
	if err := d.Break(t.Context(), "job", "someone", 0); err != nil {
		t.Errorf("Break = %v", err)
	}
	nothingLeft(t, node)
	node.Must("LPUSH", "list", "x")
	if st := status(t, d, "list"); len(st.Holders)+len(st.Waiters) != 0 {
		t.Errorf("Status of a list = %+v", st)
	}
}

// TestSilence checks that each waiter, and no holder, is shown with the time since its last sign of
// life, which is no longer ago than its request: people would take it for gone.
func TestSilence(t *testing.T) {
	d := open(t, at(used(t, redistest.Single(t)).Addr()))
	for _, mode := range modes {
		t.Run(mode.name, func(t *testing.T) {
			req := func(owner string) driver.Request { return mode.as(request(mode.name, owner, time.Minute)) }
			blocker := req("holder")
			blocker.Shared = false
			take(t, d, blocker)
			for range max(0, blocker.Slots-1) {
				take(t, d, req("another holder"))
			}
			wait(t, d, req("waiter"), 1)
			silence, err := d.Admin().Silence(t.Context(), mode.name)
			if err != nil {
				t.Fatal(err)
			}
			waited := status(t, d, mode.name).Waiters[0].Waited // read later, so it is not less
			if got, ok := silence["waiter"]; !ok || got > waited || len(silence) != 1 {
				t.Errorf("Silence = %v of one waiter who asked %v ago", silence, waited)
			}
		})
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
	if d, err := redislock.New(t.Context(), forgetful{client, c.Addrs()[0]}); err == nil || !strings.Contains(err.Error(), want) {
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
	d, d2 := open(t, at(node.Addr())), open(t, at(node.Addr()))
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("lock[*]%03d", i)
		take(t, d, request(name, "owner", time.Minute))
		want = append(want, name)
	}
	for _, name := range []string{"lock[*", "lock*", "lock", "lockx*]1", "LOCK[*]1", "no lock[*]1", "{no}lock[*]1"} {
		take(t, d, request(name, "owner", time.Minute))
	}
	before := commands(t, node)
	// Another client works meanwhile.
	startOther := func() (worst func() time.Duration) {
		stop, most := make(chan struct{}), make(chan time.Duration)
		go func() {
			var slowest time.Duration
			for {
				select {
				case <-stop:
					most <- slowest
					return
				default:
				}
				began := time.Now()
				if _, err := d2.Status(t.Context(), "lock"); err != nil {
					t.Error(err)
				}
				slowest = max(slowest, time.Since(began))
			}
		}()
		return func() time.Duration { close(stop); return <-most }
	}
	stopOther := startOther()
	time.Sleep(time.Second) // in which the other client is not disturbed
	alone := stopOther()
	worst := startOther()
	machine := livetest.Lateness()
	began := time.Now()
	got := list(t, d, "lock[*]")
	took := time.Since(began)
	noisy := machine()
	latency := worst()
	t.Logf("listed in %v; meanwhile others waited %v at the most, of which the machine had %v; else %v", took, latency, noisy, alone)
	if slices.Sort(got); !slices.Equal(got, want) { // a scan has no order
		t.Errorf("List = %d names: %q", len(got), got)
	}
	if took > 10*time.Second+2000*alone { // in as many steps
		t.Errorf("List took %v, while others wait %v at the most", took, alone)
	}
	if latency > 300*time.Millisecond+noisy+2*alone { // and not a second, as KEYS takes
		t.Errorf("while it went on, another command took %v", latency)
	}
	after := commands(t, node)
	if after["keys"] != before["keys"] || after["scan"] == before["scan"] {
		t.Errorf("List called KEYS %d times and SCAN %d times", after["keys"]-before["keys"], after["scan"]-before["scan"])
	}
	if n := after["scan"] - before["scan"]; n < 100 {
		t.Errorf("List looked at 1,000,000 keys in %d steps", n)
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
