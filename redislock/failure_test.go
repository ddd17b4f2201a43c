package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/outagetest"
	"github.com/sniblock/snib/redislock"
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
	restart := outagetest.Restarted(node)
	killed := restart.Begin
	restart.Begin = func(t *testing.T) func() {
		end := killed(t)
		return func() { end(); used(t, node) }
	}
	store := outagetest.Store{Open: openOne, Secret: password}
	store.Errors(t, outagetest.Failure{Name: "NoWrites", Denied: true, Says: "script", Begin: func(*testing.T) func() { // each version has its own words
		node.Must("ACL", "SETUSER", "program", "-set")
		return func() { node.Must("ACL", "SETUSER", "program", "+set") }
	}})
	store.Failures(t,
		outagetest.Failure{Name: "Password", Denied: true, Says: "WRONGPASS", Begin: func(*testing.T) func() {
			setPassword("another")
			return func() { setPassword(password) }
		}},
		outagetest.Failure{Name: "Grace", Says: "grants nothing for another ", Has: hasEnd, Renews: true, Begin: func(*testing.T) func() {
			node.Kill()
			node.Restart()
			return func() { used(t, node) }
		}},
		outagetest.Hung("no answer", node),
		restart,
		outagetest.Failure{Name: "FullPool", Begin: func(*testing.T) func() { return node.Crowd() }},
		outagetest.Failure{Name: "FullMemory", Renews: true, Begin: func(*testing.T) func() {
			set("maxmemory", 1)
			return func() { set("maxmemory", 0) }
		}},
		outagetest.Failure{Name: "FullDisk", Begin: func(*testing.T) func() {
			shim.FillDisk(true)
			node.AwaitFullDisk("other")
			return func() { shim.FillDisk(false) }
		}},
		outagetest.Failure{Name: "ReadOnly", Begin: func(*testing.T) func() {
			node.Must("REPLICAOF", "127.0.0.1", 1)
			return func() { node.Must("REPLICAOF", "NO", "ONE") }
		}},
	)
}

// hasEnd reports whether an error says when the grace period ends.
func hasEnd(err error) bool {
	grace, ok := errors.AsType[*redislock.GraceError](err)
	return ok && grace.Left > 0 && grace.Left < time.Minute
}
