//go:build unix

package bench

import (
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A store is a server, or several that are used together.
type store struct {
	name    string   // as in allLibraries
	addrs   []string // of the servers, as host:port
	servers []*livetest.Process
	redis   []*redistest.Node // the same servers, if they are Redis
}

// allLibraries returns the libraries for each store, by the name of its benchmark.
func allLibraries() map[string][]library {
	return map[string][]library{
		"Redis": redisLibraries(), "Redlock": redlockLibraries(), "Postgres": postgresLibraries(),
		"MariaDB": mariadbLibraries(), "ZooKeeper": zookeeperLibraries(), "Etcd": etcdLibraries(),
	}
}

// newStore returns a store of one server.
func newStore(name string, server *livetest.Process) *store {
	return &store{name: name, addrs: []string{server.Addr()}, servers: []*livetest.Process{server}}
}

// Units of what is measured beside the time.
const (
	clientCPU = "client-cpu-ns/op"
	serverCPU = "server-cpu-ns/op"
	commands  = "commands/op" // that Redis executed, also in scripts
)

// perOp reports n for b.N operations.
func perOp(b *testing.B, n float64, unit string) { b.ReportMetric(n/float64(b.N), unit) }

// measure measures b.N operations, and what the servers do for them.
func (s *store) measure(b *testing.B, run func()) {
	executed, cpu := s.used()
	b.ResetTimer()
	run()
	b.StopTimer()
	executedThen, cpuThen := s.used()
	perOp(b, float64(cpuThen-cpu), serverCPU)
	if len(s.redis) > 0 {
		perOp(b, float64(executedThen-executed-len(s.redis)), commands) // without the first INFO
	}
}

// used returns what the servers have executed and used since their start.
func (s *store) used() (executed int, cpu time.Duration) {
	for _, r := range s.redis {
		for _, calls := range r.Calls() {
			executed += calls
		}
	}
	for _, p := range s.servers {
		cpu += p.CPU()
	}
	return executed, cpu
}
