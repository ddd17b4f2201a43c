package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/redlock/redlockadmin"
)

// TestOpenRefuses checks that Open refuses invalid input, and gives the reason.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	replica := redistest.Single(t, redistest.Password(password), "replicaof 127.0.0.1 1")
	member := redistest.ClusterNode(t, redistest.Password(password))
	extra := redistest.Single(t, redistest.Password(password))
	nobody := rueidis.ClientOption{InitAddress: []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(livetest.FreePort(t)))}}
	// twice lists a server under two names, beside one that is not there: Open waits for its answers,
	// without which there is no majority.
	twice := func(n *redistest.Node) []rueidis.ClientOption {
		alias := at(n)
		alias.InitAddress = []string{"localhost:" + port(n)}
		return []rueidis.ClientOption{at(n), alias, nobody}
	}
	wrong := at(c.nodes[0])
	wrong.InitAddress = nil
	with := func(other rueidis.ClientOption) []rueidis.ClientOption {
		return []rueidis.ClientOption{c.servers[0], c.servers[1], other}
	}
	swapped := []rueidis.ClientOption{redirected(c.servers[0], c.nodes[1]), redirected(c.servers[1], c.nodes[0]),
		c.servers[2]}
	tests := []struct {
		name    string
		servers []rueidis.ClientOption
		opts    []redlock.Option
		says    string
	}{
		{"Two", c.servers[:2], nil, "at least 3"},
		{"None", nil, nil, "at least 3"},
		{"Even", append(c.servers[:3:3], at(extra)), nil, "odd number"},
		{"AddressTwice", with(c.servers[0]), nil, "is in it twice"},
		{"ServerTwice", twice(extra), nil, "one server"},
		{"NoAddress", with(wrong), nil, "0 addresses"},
		{"BadAddress", with(rueidis.ClientOption{InitAddress: []string{"nowhere"}}), nil, "host:port"},
		{"Replica", twice(replica), nil, "replica of 127.0.0.1:1"},
		{"ClusterNode", twice(member), nil, "Redis Cluster"},
		{"OtherList", with(at(extra)), nil, "belongs to ["},
		{"OtherMaxTTL", c.servers, []redlock.Option{redlock.MaxTTL(30 * time.Second)}, "MaxTTL of 1m0s, and here it is"},
		{"Swapped", swapped, nil, "the server at"},
		{"MaxTTL", c.servers, []redlock.Option{redlock.MaxTTL(0)}, "want 100ms to 24h"},
		{"MaxTTLFraction", c.servers, []redlock.Option{redlock.MaxTTL(time.Second + 1)}, "milliseconds"},
		{"NodeTimeout", c.servers, []redlock.Option{redlock.NodeTimeout(0)}, "NodeTimeout"},
		{"ZeroOption", c.servers, make([]redlock.Option, 1), "the zero Option"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := redlock.Open(t.Context(), tt.servers, tt.opts...)
			if err == nil {
				d.Close()
				t.Fatal("Open = nil")
			}
			checkError(t, "Open", err, driver.ErrInvalid, tt.says)
		})
	}
}

func port(n *redistest.Node) string { return n.Addr()[len("127.0.0.1:"):] }

// redirected makes a client connect to another server than its address says.
func redirected(o rueidis.ClientOption, to *redistest.Node) rueidis.ClientOption {
	o.DialCtxFn = func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", to.Addr())
	}
	return o
}

// TestOpenWithoutMajority checks that Open fails without a majority. The error says which nodes do
// not answer, and why.
func TestOpenWithoutMajority(t *testing.T) {
	c := start(t, 3)
	c.init(t)
	c.nodes[0].Kill()
	open(t, c.servers) // with two of three
	c.nodes[1].Hang()
	slack := livetest.Slack(t)
	d, err := redlock.Open(t.Context(), c.servers)
	if err == nil {
		d.Close()
		t.Fatal("Open with one of three nodes = nil")
	}
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Open with one of three nodes = %v, want ErrUnavailable", err)
	}
	for _, text := range []string{"1 of 3 nodes take part", c.nodes[0].Addr() + ": ", "refused",
		c.nodes[1].Addr() + ": it does not answer"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Open with one of three nodes = %q, which does not say %q", err, text)
		}
	}
	errEnough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errEnough)
	defer cancel()
	began := time.Now()
	if _, err := redlock.Open(ctx, c.servers); !errors.Is(err, errEnough) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Open whose context has ended = %v, want its cause and ErrUnavailable", err)
	}
	if took := time.Since(began); took > 4*time.Second+slack() {
		t.Errorf("it took %v", took)
	}
	c.nodes[1].Resume()
	wrong := append([]rueidis.ClientOption(nil), c.servers...)
	for i := range wrong {
		wrong[i].Password = "wrong"
	}
	if _, err := redlock.Open(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("Open with a wrong password = %v, want WRONGPASS", err)
	} else if errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Open with a wrong password = %v, which matches ErrUnavailable, although waiting does not help", err)
	}
}

// TestLateNodeIsChecked checks that a driver examines a node that was down when the driver was
// opened, as soon as the node is back.
func TestLateNodeIsChecked(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.init(t)
	servers, proxies := c.detour(t)
	c.nodes[2].Kill()
	d := open(t, servers)
	// The driver must not reach the node before the node belongs to another cluster.
	proxies[2].Redirect("127.0.0.1:1")
	c.nodes[2].Restart()
	c.nodes[2].Must("HSET", "snib.redlock", "cluster", `{"maxTTL":1,"nodes":["x:1"]}`, "self", "x:1")
	proxies[2].Redirect(c.nodes[2].Addr())
	c.nodes[1].Kill() // so the third one is needed
	livetest.Await(t, "refusal of the node that belongs to others", func() error {
		_, err := tryAcquire(t, d, request("x", "a", ttl))
		if err == nil {
			return errors.New("it was granted")
		}
		if !strings.Contains(err.Error(), "belongs to [x:1]") {
			return err
		}
		return nil
	})
}

// TestInit checks that Init may be called again, and refuses nodes that are unreachable, have
// forgotten, or belong to another cluster.
func TestInit(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	if got := c.states(t); got[0] != redlockadmin.NodeBlank {
		t.Errorf("before Init the nodes are %v, want blank", got)
	}
	c.init(t)
	c.init(t)
	c.awaitStates(t, repeatState(3, redlockadmin.NodeAdmitted)...)
	c.nodes[0].Kill()
	if err := redlock.Admin(c.servers).Init(t.Context()); err == nil || !strings.Contains(err.Error(), "unreachable") {
		t.Errorf("Init with a node down = %v, want that it is unreachable", err)
	}
	c.nodes[0].Restart()
	checkError(t, "Init with a node that has forgotten", redlock.Admin(c.servers).Init(t.Context()), driver.ErrInvalid,
		"1 have forgotten")
	c.awaitStates(t, redlockadmin.NodeBlank, redlockadmin.NodeAdmitted, redlockadmin.NodeAdmitted)
	checkError(t, "Init with another MaxTTL", redlock.Admin(c.servers, redlock.MaxTTL(time.Second)).Init(t.Context()),
		driver.ErrInvalid, "belongs to")
	checkError(t, "Recover without a floor", redlock.Admin(c.servers).Recover(t.Context(), 0), driver.ErrInvalid, "floor")
}
