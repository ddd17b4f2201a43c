package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redislock/redisadmin"
)

// A fakeCluster is a Conn to a Cluster whose masters have these versions.
type fakeCluster struct {
	savingConn
	versions []string
	down     error // what the servers answer to anything but the checks of New
	keys     []string
	eval     func(redislock.Call) redislock.Reply
}

// A fakeMaster is one of its masters.
type fakeMaster struct {
	*fakeCluster
	version string
}

func (*fakeCluster) IsCluster() bool { return true }

func (c *fakeCluster) Masters(context.Context) (all []redislock.Node, err error) {
	for _, v := range c.versions {
		all = append(all, fakeMaster{c, v})
	}
	return all, nil
}

func (m fakeMaster) Do(ctx context.Context, command ...string) ([]string, error) {
	switch {
	case m.down != nil:
		return nil, m.down
	case command[0] == "INFO":
		return []string{"redis_version:" + m.version + "\r\nrole:master\r\nrun_id:1\r\ncluster_enabled:1\r\n"}, nil
	case command[0] == "ROLE":
		return []string{"master"}, nil
	case command[0] == "SCAN":
		return append([]string{"0"}, m.keys...), nil
	}
	return m.savingConn.Do(ctx, command...)
}

func (c *fakeCluster) Eval(_ context.Context, calls ...redislock.Call) []redislock.Reply {
	return []redislock.Reply{c.eval(calls[0])}
}

func openFake(t *testing.T, c redislock.Conn, opts ...redislock.Option) *redislock.Driver {
	t.Helper()
	d, err := redislock.NewConn(t.Context(), c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestListAsksOneSlotAtATime lists locks whose names, but not whose keys, lie in one slot of a
// Cluster: a client panics, or the server refuses the call, if its keys lie in several.
func TestListAsksOneSlotAtATime(t *testing.T) {
	c := &fakeCluster{versions: []string{"8.0.0"}, keys: []string{"app:job/1", "app:job/1630"}}
	c.eval = func(call redislock.Call) (r redislock.Reply) {
		for _, key := range call.Keys {
			if redislock.SlotOf(key) != redislock.SlotOf(call.Keys[0]) {
				t.Errorf("the keys %q lie in several slots", call.Keys)
			}
		}
		if len(call.Args) > 0 { // which of the keys are locks of snib?
			return redislock.Reply{Lines: []string{strings.Repeat("1", len(call.Keys))}}
		}
		for range len(call.Keys) / 3 {
			r.Lines = append(r.Lines, fmt.Sprintf(`{"type":"string","left":1000,"value":%q}`, `{"snib":2,"id":"holder","token":5}`))
		}
		return r
	}
	got := list(t, openFake(t, c, redislock.Prefix("app:")), "job/")
	if len(got) == 0 || len(got)%2 != 0 { // twice: the fake server does not look at the pattern
		t.Errorf("List = %q", got)
	}
}

// TestOutageOfScan loses the servers before each request that goes through all of them. An outage
// is not an error that no retry can help.
func TestOutageOfScan(t *testing.T) {
	c := &fakeCluster{versions: []string{"8.0.0"}}
	d := openFake(t, c)
	c.down = io.EOF
	more := func(driver.Status) bool { return true }
	_, err := d.Admin().Servers(t.Context())
	for call, err := range map[string]error{
		"Servers":   err,
		"List":      d.List(t.Context(), "", more),
		"Foreign":   d.Admin().Foreign(t.Context(), "", more),
		"Strangers": d.Admin().Strangers(t.Context(), "", func(redisadmin.Stranger) bool { return true }),
	} {
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, c.down) {
			t.Errorf("%s = %v, want ErrUnavailable for %v", call, err, c.down)
		}
	}
}

// TestShardedOnlyIfAllServersAre checks that a driver uses no sharded channel while one master of a
// Cluster has none.
func TestShardedOnlyIfAllServersAre(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"7.0.0", "7.0.0"}: true, {"6.2.0", "7.0.0"}: false, {"7.0.0", "6.2.0"}: false,
	} {
		c, sharded := &fakeCluster{versions: versions[:]}, false
		c.eval = func(call redislock.Call) redislock.Reply {
			sharded = strings.Contains(fmt.Sprint(call.Args), `"channel":"snib.c:{`)
			return redislock.Reply{Lines: []string{"h 100"}}
		}
		req := request("job", "id", floor)
		req.NoWait = true
		if _, err := openFake(t, c).Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) || sharded != want {
			t.Errorf("servers %q: Acquire = %v, with a sharded channel: %v, want %v", versions, err, sharded, want)
		}
	}
}
