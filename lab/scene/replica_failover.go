package scene

import (
	"net"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/lab/pattern"
)

// A masterAndReplica is a Redis master with a replica. It is for one act.
type masterAndReplica struct {
	stage           *Stage
	master, replica *redisServer
	stock           *redisServer // on a server that does not fail
	link            *livetest.Proxy
}

// MasterAndReplica starts a master and its replica.
func (s *Stage) MasterAndReplica() *masterAndReplica {
	s.starting("three Redis servers")
	m := &masterAndReplica{stage: s, stock: s.Redis()}
	m.master = &redisServer{Node: redistest.Single(s.t).Used(), stage: s}
	m.link = livetest.NewProxy(s.t, m.master.Addr())
	host, port, err := net.SplitHostPort(m.link.Addr())
	check("the address of a proxy", err)
	m.replica = &redisServer{Node: redistest.Single(s.t, "replicaof "+host+" "+port), stage: s}
	s.Await("the replica to have what its master has", func() bool {
		n, err := m.replica.Do("EXISTS", "snib.m")
		return err == nil && n == int64(1)
	})
	s.look = m.look
	s.Begin()
	return m
}

// Client starts a client of one of the two servers.
func (m *masterAndReplica) Client(name string, of *redisServer, p pattern.Name, ttl time.Duration) *Client {
	return m.stage.start(pattern.Spec{Pattern: p, URLs: []string{of.URL()}, Stock: m.stock.URL(), Client: name, TTL: ttl})
}

// Cut cuts the replica off from its master. Neither is told.
func (m *masterAndReplica) Cut() {
	m.link.Sever()
	m.say("the link to the replica breaks")
}

// Failover kills the master, and makes the replica the master, as Sentinel would do.
func (m *masterAndReplica) Failover() {
	m.master.Kill()
	m.say("† the master is killed (kill -9)")
	m.replica.Must("REPLICAOF", "NO", "ONE")
	m.say("the replica is the master now")
}

func (m *masterAndReplica) say(format string, args ...any) {
	m.stage.Say(m.stage.scene.Server, format, args...)
}

func (m *masterAndReplica) look() []string {
	master := "master: down"
	if m.master.Up() {
		master = "master: " + m.master.lock()
	}
	return []string{master, "replica: " + m.replica.lock(), m.stock.look()[1]}
}

// replicaFailover is a replica that becomes the master without having heard of the lock.
func replicaFailover() Scene {
	const ttl = 5 * time.Second
	play := func(p pattern.Name) func(*Stage) {
		return func(s *Stage) {
			m := s.MasterAndReplica()
			a := m.Client("A", m.master, p, ttl)
			a.MayLose()
			m.Cut()
			a.Acquire()
			a.Work(Before("SET"))
			m.Failover()
			b := m.Client("B", m.replica, p, ttl)
			early := b.Acquire()
			if early {
				b.Work()
				b.Release()
			}
			a.GoOn()
			if !early {
				s.Await("the end of A's lease", func() bool { return !a.Holds() })
				b.Finish()
				b.Work()
				b.Release()
			}
		}
	}
	return Scene{
		Name:  "replica-failover",
		Title: "a replica becomes the master, and does not know of the lock",
		Story: "Redis answers before it replicates. A gets the lock from the master, which dies before the replica has heard of it. " +
			"The replica becomes the master. B reaches it, and A does not yet.",
		Clients: []string{"A", "B"},
		Server:  "redis",
		Broken:  Act{Title: "the new master gives the lock to B", play: play(pattern.SetNX), want: Damage{Together: 1, Lost: 1}},
		Right:   Act{Title: "with snib, the new master grants nothing for as long as A may rely on its lock", play: play(pattern.Snib)},
		Advice: "Have a new master grant nothing until the leases are over that it may not know of, as snib does; " +
			"WAIT and min-replicas-to-write make such leases rarer, but do not exclude them.",
		Page: "docs/from-setnx.md#replica-failover",
	}
}
