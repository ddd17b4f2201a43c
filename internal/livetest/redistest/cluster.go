package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

const (
	shards = 3
	slots  = 16384

	// busOffset is the difference between a node's cluster bus port and its client port.
	busOffset = 10000

	// nodeTimeout is how long a node may be silent before it counts as down. On a busy machine a
	// node that is well may be silent for a second or two. But nodes may take as long as this to
	// tell each other of a change. failoverTimeout applies while a test wants a failover.
	nodeTimeout     = 5 * time.Second
	failoverTimeout = time.Second
)

// A ClusterSetup is a cluster of three masters, which share the slots evenly, each with a
// replica. A master that [ClusterSetup.KillMasterOf] kills is
// replaced after two or three seconds. Other nodes that do not answer count as down later.
type ClusterSetup struct {
	t        testing.TB
	nodes    []*Node
	ids      map[*Node]string
	password string
}

// ClusterNode starts a node in cluster mode that knows no other node and owns no slot.
func ClusterNode(t testing.TB, conf ...string) *Node {
	t.Helper()
	return start(t, newMember(t, "redis node", conf))[0]
}

// newMember returns the specification of a cluster node. It needs a second port at
// a fixed offset from the first.
func newMember(t testing.TB, name string, conf []string) *nodeSpec {
	t.Helper()
	s := newSpec(t, name, conf)
	s.port = livetest.FreePort(t, busOffset)
	s.add("cluster-enabled yes")
	return s
}

// Cluster starts a cluster and returns when all nodes agree that it is healthy. The
// lines of configuration are for all nodes.
func Cluster(t testing.TB, conf ...string) *ClusterSetup {
	t.Helper()
	var specs []*nodeSpec
	var ids []string
	for i := range 2 * shards {
		s := newMember(t, fmt.Sprintf("redis node %d", i+1), conf)
		s.add(
			"cluster-config-file nodes.conf",
			fmt.Sprintf("cluster-node-timeout %d", nodeTimeout.Milliseconds()),
		)
		specs = append(specs, s)
		ids = append(ids, newID())
	}
	// Each node gets the file that it would write itself as a member of the cluster, because
	// introducing nodes to each other takes seconds.
	named := AtLeast(t, 7, 2)
	for i, s := range specs {
		if err := os.WriteFile(filepath.Join(s.dir, "nodes.conf"), []byte(nodesConf(specs, ids, i, named)),
			0o600); err != nil {
			t.Fatalf("configure the cluster: %v", err)
		}
	}
	c := &ClusterSetup{t: t, nodes: start(t, specs...), ids: map[*Node]string{}, password: specs[0].password}
	for i, n := range c.nodes {
		c.ids[n] = ids[i]
	}
	c.WaitUntilWell()
	return c
}

// membership returns nodes.conf for one of the nodes: the first ones are masters, the
// others are their replicas in the same order. Since Redis 7.2 the file names the
// shards, and CLUSTER SHARDS relies on that.
func nodesConf(specs []*nodeSpec, ids []string, myself int, withShardIDs bool) string {
	var text strings.Builder
	for i, s := range specs {
		flags, shard, of := "", i%shards, ""
		if i == myself {
			flags = "myself,"
		}
		if withShardIDs { // it follows the host name, which is empty
			of = ",,shard-id=" + ids[shard]
		}
		addr := fmt.Sprintf("127.0.0.1:%d@%d%s", s.port, s.port+busOffset, of)
		if i == shard {
			fmt.Fprintf(&text, "%s %s %smaster - 0 0 %d connected %d-%d\n",
				ids[i], addr, flags, shard+1, firstSlot(shard), firstSlot(shard+1)-1)
		} else {
			fmt.Fprintf(&text, "%s %s %sslave %s 0 0 %d connected\n", ids[i], addr, flags, ids[shard], shard+1)
		}
	}
	fmt.Fprintf(&text, "vars currentEpoch %d lastVoteEpoch 0\n", shards)
	return text.String()
}

// firstSlot returns the first slot of a shard.
func firstSlot(shard int) int { return shard * slots / shards }

// FirstMasterOf returns the master that owns a slot when the cluster starts.
func (c *ClusterSetup) FirstMasterOf(slot int) *Node {
	shard := shards - 1
	for slot < firstSlot(shard) {
		shard--
	}
	return c.nodes[shard]
}

// Addrs returns the addresses of all nodes.
func (c *ClusterSetup) Addrs() []string { return addrs(c.nodes) }

// Nodes returns all nodes, in the order of [ClusterSetup.Addrs].
func (c *ClusterSetup) Nodes() []*Node { return slices.Clone(c.nodes) }

// SlotOf returns the slot of a key.
func (c *ClusterSetup) SlotOf(key string) int {
	c.t.Helper()
	slot, _ := up(c.nodes)[0].Must("CLUSTER", "KEYSLOT", key).(int64)
	return int(slot)
}

// MasterOf returns the master of a slot. It waits until all nodes that are up agree
// on it. The master may be down.
func (c *ClusterSetup) MasterOf(slot int) *Node {
	c.t.Helper()
	return c.awaitMaster("agreement on a master", slot, func(*Node) error { return nil })
}

// MasterOtherThan returns a master that a slot can be moved to.
func (c *ClusterSetup) MasterOtherThan(slot int) *Node {
	c.t.Helper()
	master := c.MasterOf(slot)
	for shard := range shards {
		if n := c.MasterOf(firstSlot(shard)); n != master && n.Up() {
			return n
		}
	}
	c.t.Fatalf("all slots belong to %s", master.Addr())
	return nil
}

// KillMasterOf kills the master of a slot, and returns it.
func (c *ClusterSetup) KillMasterOf(slot int) *Node {
	c.t.Helper()
	master := c.MasterOf(slot)
	master.Kill()
	c.setNodeTimeout(failoverTimeout)
	return master
}

// setNodeTimeout sets the nodeTimeout of the nodes that are up.
func (c *ClusterSetup) setNodeTimeout(d time.Duration) {
	c.t.Helper()
	for _, n := range up(c.nodes) {
		n.Must("CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
	}
}

// Failover makes a replica the master of a slot by a manual failover, and returns it.
func (c *ClusterSetup) Failover(slot int) *Node {
	c.t.Helper()
	old := c.MasterOf(slot)
	c.WaitUntilWell()
	view, err := c.slotOwners(old)
	livetest.Must(c.t, err, "failover of slot %d", slot)
	for _, replica := range view[slot][1:] {
		if replica.Up() {
			// Masters vote once for each shard within twice the timeout.
			c.setNodeTimeout(failoverTimeout)
			replica.Must("CLUSTER", "FAILOVER")
			return c.WaitForFailover(slot, old)
		}
	}
	c.t.Fatalf("failover of slot %d: %s has no replica", slot, old.Addr())
	return nil
}

// WaitForFailover waits until all nodes that are up agree on a master of the slot other than
// old, and the cluster works again. It returns the new master.
func (c *ClusterSetup) WaitForFailover(slot int, old *Node) *Node {
	c.t.Helper()
	master := c.awaitMaster("failover", slot, func(master *Node) error {
		if master == old {
			return fmt.Errorf("the master of slot %d is still %s", slot, old.Addr())
		}
		return c.checkState()
	})
	c.setNodeTimeout(nodeTimeout)
	return master
}

// awaitMaster waits until all nodes that are up agree on the master of a slot, and accept
// returns nil for it. It returns that master.
func (c *ClusterSetup) awaitMaster(what string, slot int, accept func(*Node) error) *Node {
	c.t.Helper()
	var master *Node
	livetest.Await(c.t, what, func() error {
		master = nil
		for _, n := range up(c.nodes) {
			view, err := c.slotOwners(n)
			if err != nil {
				return err
			}
			found := view[slot]
			if len(found) == 0 || master != nil && found[0] != master {
				return fmt.Errorf("%s knows another master of slot %d, or none", n.Addr(), slot)
			}
			master = found[0]
		}
		if master == nil {
			return errors.New("no node is up")
		}
		return accept(master)
	})
	return master
}

// WaitUntilWell waits until the nodes that are up agree on the master of each slot, know of
// each other that they are up, and report that the cluster works, and until the replicas
// among them have all data of their masters.
func (c *ClusterSetup) WaitUntilWell() {
	c.t.Helper()
	livetest.Await(c.t, "cluster that is well", func() error {
		if err := c.checkState(); err != nil {
			return err
		}
		var common [][]*Node
		for _, n := range up(c.nodes) {
			view, err := c.slotOwners(n)
			if err != nil {
				return err
			}
			if common == nil {
				common = view
			}
			var seen []*Node
			for slot, owners := range view {
				for _, other := range owners {
					if !slices.Contains(seen, other) {
						seen = append(seen, other)
					}
				}
				if len(owners) == 0 || len(common[slot]) == 0 || owners[0] != common[slot][0] {
					return fmt.Errorf("%s knows another master of slot %d, or none", n.Addr(), slot)
				}
			}
			for _, other := range up(c.nodes) {
				if !slices.Contains(seen, other) {
					return fmt.Errorf("%s thinks that %s is down", n.Addr(), other.Addr())
				}
			}
		}
		return checkSynced(c.nodes)
	})
	c.setNodeTimeout(nodeTimeout) // there may have been no failover
}

// checkState returns nil if all nodes that are up report that the cluster works.
func (c *ClusterSetup) checkState() error {
	for _, n := range up(c.nodes) {
		fields, err := n.Fields("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if state := fields["cluster_state"]; state != "ok" {
			return fmt.Errorf("%s says that the state of the cluster is %s", n.Addr(), state)
		}
	}
	return nil
}

// slotOwners returns the nodes that serve each slot according to n: the master,
// followed by its replicas.
func (c *ClusterSetup) slotOwners(n *Node) ([][]*Node, error) {
	answer, err := n.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	view := make([][]*Node, slots)
	for _, item := range list(answer) {
		fields := list(item)
		if len(fields) < 3 {
			return nil, fmt.Errorf("CLUSTER SLOTS at %s = %v", n.Addr(), answer)
		}
		var nodes []*Node
		for _, field := range fields[2:] {
			node := nodeAt(c.nodes, address(field))
			if node == nil {
				return nil, fmt.Errorf("CLUSTER SLOTS at %s = %v, with an unknown node", n.Addr(), answer)
			}
			nodes = append(nodes, node)
		}
		from, _ := fields[0].(int64)
		to, _ := fields[1].(int64)
		for slot := from; slot <= to; slot++ {
			view[slot] = nodes
		}
	}
	return view, nil
}

// KeysIn returns up to 100 keys in a slot, without those that have been moved to another master.
func (c *ClusterSetup) KeysIn(slot int) (keys []string) {
	c.t.Helper()
	for _, key := range list(c.MasterOf(slot).Must("CLUSTER", "GETKEYSINSLOT", slot, 100)) {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// A Move is a slot that is being moved between two masters. The old master still owns the slot
// and serves the keys that it has. For other keys it answers with ASK, or with TRYAGAIN if a
// command names several keys of which some have been moved.
type Move struct {
	c    *ClusterSetup
	slot int

	From, To *Node
}

// BeginMove begins to move a slot. It moves no key yet.
func (c *ClusterSetup) BeginMove(slot int, to *Node) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: slot, From: c.MasterOf(slot), To: to}
	m.To.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[m.From])
	m.From.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[m.To])
	return m
}

// Keys moves the keys that are in the slot now.
func (m *Move) Keys() {
	m.c.t.Helper()
	for keys := m.c.KeysIn(m.slot); len(keys) > 0; keys = m.c.KeysIn(m.slot) {
		m.Migrate(keys...)
	}
}

// Migrate moves some keys.
func (m *Move) Migrate(keys ...string) {
	m.c.t.Helper()
	host, port, _ := net.SplitHostPort(m.To.Addr())
	migrate := []any{"MIGRATE", host, port, "", 0, timeout.Milliseconds()}
	if m.c.password != "" {
		migrate = append(migrate, "AUTH", m.c.password)
	}
	migrate = append(migrate, "KEYS")
	for _, key := range keys {
		migrate = append(migrate, key)
	}
	m.From.Must(migrate...)
}

// Cancel ends the move. It must not have moved any keys.
func (m *Move) Cancel() {
	m.c.t.Helper()
	m.From.Must("CLUSTER", "SETSLOT", m.slot, "STABLE")
	m.To.Must("CLUSTER", "SETSLOT", m.slot, "STABLE")
}

// Finish moves the remaining keys and gives the slot to the new master. It returns
// when all nodes know it.
func (m *Move) Finish() {
	m.c.t.Helper()
	m.Keys()
	// The new master comes first, so that the slot always has a master.
	m.To.Must("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.ids[m.To])
	m.From.Must("CLUSTER", "SETSLOT", m.slot, "NODE", m.c.ids[m.To])
	m.c.awaitMaster("knowledge of a slot's move", m.slot, func(master *Node) error {
		if master != m.To {
			return fmt.Errorf("the master of slot %d is still %s", m.slot, master.Addr())
		}
		return m.c.checkState()
	})
}
