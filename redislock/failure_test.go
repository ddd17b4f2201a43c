package redislock_test

import (
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// TestFailures proves cells of Redis in docs/failures.md; other tests prove the rest.
func TestFailures(t *testing.T) {
	t.Parallel()
	shim := livetest.NewShim(t, "redis")
	node := used(t, redistest.Single(livetest.WithEnv(t, shim.Env()...),
		redistest.Password(password), "appendonly yes", "user program on >"+password+" ~* &* +@all"))
	o := at(node.Addr())
	o.Username = "program"
	set := func(key string, value any) { node.Must("CONFIG", "SET", key, value) }
	setPassword := func(p string) {
		node.Must("ACL", "SETUSER", "program", "resetpass", ">"+p)
		node.Must("CLIENT", "KILL", "USER", "program")
	}
	openOne := func(t *testing.T) driver.Driver { return open(t, o) }
	jobtest.Failures(t, openOne,
		jobtest.Failure{Name: "Password", Denied: true, Begin: func(*testing.T) func() {
			setPassword("another")
			return func() { setPassword(password) }
		}},
		jobtest.Failure{Name: "FullPool", Begin: func(*testing.T) func() { return node.Crowd() }},
		jobtest.Failure{Name: "FullMemory", Renews: true, Begin: func(*testing.T) func() {
			set("maxmemory", 1)
			return func() { set("maxmemory", 0) }
		}},
		jobtest.Failure{Name: "FullDisk", Begin: func(*testing.T) func() {
			shim.FillDisk(true)
			node.AwaitFullDisk("other")
			return func() { shim.FillDisk(false) }
		}},
		jobtest.Failure{Name: "ReadOnly", Begin: func(*testing.T) func() {
			node.Must("REPLICAOF", "127.0.0.1", 1)
			return func() { node.Must("REPLICAOF", "NO", "ONE") }
		}},
	)
}
