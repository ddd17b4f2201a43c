package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

const (
	// masterName is the name of the master in the Sentinels.
	masterName = "mymaster"

	// downAfter is how long a server may be silent before it counts as down. It is long, because
	// on a busy machine a server that is well may be silent for half a second. failoverDownAfter
	// applies from the time when a test wants a failover until that is over.
	downAfter         = 30 * time.Second
	failoverDownAfter = 500 * time.Millisecond
)

// A SentinelSetup is a master and its replica, monitored by three Sentinels with a
// quorum of two. If [SentinelSetup.KillMaster] or [SentinelSetup.HangMaster] breaks the
// master, they notice within half a second, and a failover takes one or two seconds more.
// Other servers that do not answer count as down later.
type SentinelSetup struct {
	t         testing.TB
	nodes     []*Node // the first is the initial master
	sentinels []*Node
}

// Sentinel starts a master, a replica and three Sentinels, and returns when a
// failover would succeed. The lines of configuration are for the master and the
// replica, except [SentinelPassword].
func Sentinel(t testing.TB, conf ...string) *SentinelSetup {
	t.Helper()
	s := &SentinelSetup{t: t}
	master, replica := newSpec(t, "redis master", conf), newSpec(t, "redis replica", conf)
	master.port, replica.port = livetest.FreePort(t), livetest.FreePort(t)
	replica.add(fmt.Sprintf("replicaof 127.0.0.1 %d", master.port))
	// Start them in this order, otherwise the replica waits before it retries.
	s.nodes = append(start(t, master), start(t, replica)...)
	livetest.Await(t, "replica in sync", func() error { return checkSynced(s.nodes) })

	// Each Sentinel is told of all others, because finding them through the master
	// takes seconds.
	var specs []*nodeSpec
	var ids []string
	for i := range 3 {
		specs = append(specs, &nodeSpec{
			name:     fmt.Sprintf("sentinel %d", i+1),
			dir:      t.TempDir(),
			port:     livetest.FreePort(t),
			args:     []string{"--sentinel"},
			password: master.sentinelPassword,
		})
		ids = append(ids, newID())
	}
	for i, spec := range specs {
		spec.add(
			"sentinel myid "+ids[i],
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", masterName, master.port),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", masterName, downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s 2000", masterName),
			fmt.Sprintf("sentinel known-replica %s 127.0.0.1 %d", masterName, replica.port),
		)
		for j, other := range specs {
			if j != i {
				spec.add(fmt.Sprintf("sentinel known-sentinel %s 127.0.0.1 %d %s", masterName, other.port, ids[j]))
			}
		}
		if master.password != "" {
			spec.add(fmt.Sprintf("sentinel auth-pass %s %q", masterName, master.password))
		}
		if spec.password != "" {
			spec.add(fmt.Sprintf("requirepass %q", spec.password), fmt.Sprintf("sentinel sentinel-pass %q", spec.password))
		}
	}
	s.sentinels = start(t, specs...)
	for _, sentinel := range s.sentinels {
		// By default, Sentinels need ten seconds and more to notice that a master
		// is back, and to demote it. On a busy machine, where a timer may be two seconds
		// late, they would also rest for half a minute each time.
		_, err := sentinel.Do("SENTINEL", "DEBUG", "PING-PERIOD", 200, "PUBLISH-PERIOD", 500, "INFO-PERIOD", 500,
			"TILT-TRIGGER", livetest.Patience.Milliseconds())
		if _, old := err.(Error); err != nil && !old { //nolint:errorlint // Do returns it as it is; before 7.0 there is no DEBUG
			t.Fatalf("hurry %s up: %v", sentinel.Addr(), err)
		}
	}
	s.WaitForReplicas()
	return s
}

// newID returns an id in the format of the servers' own ids.
func newID() string { return fmt.Sprintf("%040x", rand.Uint64()) }

// MasterName returns the name of the master in the Sentinels.
func (s *SentinelSetup) MasterName() string { return masterName }

// Addrs returns the addresses of the servers.
func (s *SentinelSetup) Addrs() []string { return addrs(s.nodes) }

// Sentinels returns the addresses of the Sentinels.
func (s *SentinelSetup) Sentinels() []string { return addrs(s.sentinels) }

// SentinelNodes returns the Sentinels, in the order of [SentinelSetup.Sentinels].
func (s *SentinelSetup) SentinelNodes() []*Node { return slices.Clone(s.sentinels) }

// Nodes returns the two servers: the initial master, and the initial replica.
func (s *SentinelSetup) Nodes() []*Node { return slices.Clone(s.nodes) }

// Master returns the master. It waits until the Sentinels that are up agree on it.
// The master may be down.
func (s *SentinelSetup) Master() *Node {
	s.t.Helper()
	return s.awaitMaster("agreement on the master", func(*Node) error { return nil })
}

// KillMaster kills the master, and returns it.
func (s *SentinelSetup) KillMaster() *Node {
	s.t.Helper()
	master := s.Master()
	master.Kill()
	s.setDownAfter(failoverDownAfter)
	return master
}

// HangMaster hangs the master, and returns it, so that the caller can resume it. A resumed
// master goes on as master until the Sentinels demote it.
func (s *SentinelSetup) HangMaster() *Node {
	s.t.Helper()
	master := s.Master()
	master.Hang()
	s.setDownAfter(failoverDownAfter)
	return master
}

// setDownAfter sets downAfter in the Sentinels that are up.
func (s *SentinelSetup) setDownAfter(d time.Duration) {
	s.t.Helper()
	for _, sentinel := range s.up() {
		sentinel.Must("SENTINEL", "SET", masterName, "down-after-milliseconds", d.Milliseconds())
	}
}

// Failover makes the replica the master by a manual failover, and returns the new master.
func (s *SentinelSetup) Failover() *Node {
	s.t.Helper()
	s.WaitForReplicas()
	old := s.Master()
	s.up()[0].Must("SENTINEL", "FAILOVER", masterName)
	return s.WaitForFailover(old)
}

// WaitForFailover waits until no Sentinel that is up takes old for the master, and the new one
// has the role. It returns the new master.
func (s *SentinelSetup) WaitForFailover(old *Node) *Node {
	s.t.Helper()
	next := s.awaitMaster("failover", func(master *Node) error {
		if master == old {
			return fmt.Errorf("the master is still %s", old.Addr())
		}
		fields, err := master.Fields("INFO", "replication")
		if err == nil && fields["role"] != "master" {
			err = fmt.Errorf("the role of %s is still %s", master.Addr(), fields["role"])
		}
		return err
	})
	s.setDownAfter(downAfter)
	return next
}

// awaitMaster waits until all Sentinels agree on a master, and accept returns nil
// for it. It returns that master.
func (s *SentinelSetup) awaitMaster(what string, accept func(*Node) error) *Node {
	s.t.Helper()
	var master *Node
	livetest.Await(s.t, what, func() (err error) {
		if master, err = s.agreedMaster(); err != nil {
			return err
		}
		return accept(master)
	})
	return master
}

// agreedMaster returns the master on which all Sentinels that are up agree.
func (s *SentinelSetup) agreedMaster() (*Node, error) {
	var master *Node
	for _, sentinel := range s.up() {
		answer, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
		if err != nil {
			return nil, err
		}
		node := nodeAt(s.nodes, address(answer))
		if node == nil || master != nil && node != master {
			return nil, fmt.Errorf("sentinel %s says %v", sentinel.Addr(), answer)
		}
		master = node
	}
	if master == nil {
		return nil, errors.New("no Sentinel is up")
	}
	return master, nil
}

// WaitForReplicas waits until every server that is up is the master or a replica
// with all its data, and until every Sentinel that is up would elect that replica
// and is connected to the other Sentinels.
func (s *SentinelSetup) WaitForReplicas() {
	s.t.Helper()
	livetest.Await(s.t, "replica in sync", func() error {
		master, err := s.agreedMaster()
		if err != nil {
			return err
		}
		for _, n := range up(s.nodes) {
			if n == master {
				continue
			}
			fields, err := n.Fields("INFO", "replication")
			if err != nil {
				return err
			}
			if of := net.JoinHostPort(fields["master_host"], fields["master_port"]); of != master.Addr() {
				return fmt.Errorf("%s is a %s, want a replica of %s", n.Addr(), fields["role"], master.Addr())
			}
		}
		for _, sentinel := range s.up() {
			if err := checkSees(sentinel, "SENTINELS", without(s.up(), sentinel)); err != nil {
				return err
			}
			if err := checkSees(sentinel, "REPLICAS", without(up(s.nodes), master)); err != nil {
				return err
			}
		}
		return checkSynced(s.nodes)
	})
	s.setDownAfter(downAfter) // there may have been no failover
}

// checkSees returns nil if a Sentinel considers the given nodes healthy, which are
// replicas or other Sentinels.
func checkSees(sentinel *Node, kind string, nodes []*Node) error {
	answer, err := sentinel.Do("SENTINEL", kind, masterName)
	if err != nil {
		return err
	}
	well := map[string]bool{}
	for _, item := range list(answer) {
		fields := pairs(item)
		addr := net.JoinHostPort(fields["ip"], fields["port"])
		// Healthy nodes have no further flags such as "disconnected" or "s_down". But "master_down"
		// is what another Sentinel said of the master: Valkey 9.1 keeps it after a failover.
		switch strings.TrimSuffix(fields["flags"], ",master_down") {
		case "sentinel":
			well[addr] = true
		case "slave":
			well[addr] = fields["master-link-status"] == "ok"
		}
	}
	for _, n := range nodes {
		if !well[n.Addr()] {
			return fmt.Errorf("sentinel %s does not think well of %s: %v", sentinel.Addr(), n.Addr(), answer)
		}
	}
	return nil
}

func without(nodes []*Node, n *Node) []*Node {
	return slices.DeleteFunc(nodes, func(other *Node) bool { return other == n })
}

// up returns the Sentinels that are up.
func (s *SentinelSetup) up() []*Node { return up(s.sentinels) }

// list returns the elements of an answer, or nil if it is not a list.
func list(answer any) []any {
	l, _ := answer.([]any)
	return l
}

// address returns the address in an answer that consists of a host and a port.
func address(answer any) string {
	if l := list(answer); len(l) >= 2 {
		return net.JoinHostPort(fmt.Sprint(l[0]), fmt.Sprint(l[1]))
	}
	return ""
}

// pairs returns the contents of an answer that consists of keys, each followed by its value.
func pairs(answer any) map[string]string {
	fields := map[string]string{}
	for pair := range slices.Chunk(list(answer), 2) {
		if len(pair) == 2 {
			fields[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
		}
	}
	return fields
}
