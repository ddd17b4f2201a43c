package demo

import (
	"net"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A masterAndReplica is a Redis master with a replica. It is for one variant.
type masterAndReplica struct {
	director        *Director
	master, replica *redisServer
	stock           *redisServer // on a server that does not fail
	link            *livetest.Proxy
}

// MasterAndReplica starts a master and its replica.
func (s *Director) MasterAndReplica() *masterAndReplica {
	s.starting("three Redis servers")
	m := &masterAndReplica{director: s, stock: s.Redis()}
	m.master = &redisServer{Node: redistest.Single(s.t).Used(), director: s}
	m.link = livetest.NewProxy(s.t, m.master.Addr())
	host, port, err := net.SplitHostPort(m.link.Addr())
	check("the address of a proxy", err)
	m.replica = &redisServer{Node: redistest.Single(s.t, "replicaof "+host+" "+port), director: s}
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
	return m.director.start(pattern.Spec{Pattern: p, URLs: []string{of.URL()}, Stock: m.stock.URL(),
		Client: name, TTL: ttl})
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
	m.director.Say(m.director.demo.Server, format, args...)
}

func (m *masterAndReplica) look() []string {
	master := "master: down"
	if m.master.Up() {
		master = "master: " + m.master.lock()
	}
	return []string{master, "replica: " + m.replica.lock(), m.stock.look()[1]}
}

// replicaFailover is a replica that becomes the master without having heard of the lock.
func replicaFailover() Demo {
	const ttl = 5 * time.Second
	run := func(p pattern.Name) func(*Director) {
		return func(s *Director) {
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
	return Demo{
		Name:  "replica-failover",
		Title: "a replica becomes the master, and does not know of the lock",
		Story: "Redis answers before it replicates. A gets the lock from the master, which dies before the replica has heard of it. " +
			"The replica becomes the master. B reaches it, and A does not yet.",
		Clients: []string{"A", "B"},
		Server:  "redis",
		Broken:  Variant{Title: "the new master gives the lock to B", run: run(pattern.SetNX), want: Damage{Together: 1, Lost: 1}},
		Right:   Variant{Title: "with snib, the new master grants nothing for as long as A may rely on its lock", run: run(pattern.Snib)},
		Advice: "Have a new master grant nothing until the leases are over that it may not know of, as snib does; " +
			"WAIT and min-replicas-to-write make such leases rarer, but do not exclude them.",
		Page: "docs/from-setnx.md#replica-failover",
	}
}
