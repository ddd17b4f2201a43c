// Package servers starts the servers of stores, and makes them fail: for trials of the lab, and for
// the nemesis. [Faults] is the table of what can go wrong with servers.
package servers

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A Server is one of the servers of a store.
type Server interface {
	Addr() string
	Hang()
	Resume()
	Kill()
	Restart()

	// MayEnd allows the server to end by itself, and Up reports whether it runs.
	MayEnd()
	Up() bool
}

// A Set is the servers of a store.
type Set struct {
	T      testing.TB
	Addrs  []string // that clients are given
	Direct bool     // clients learn addresses from the servers, so nobody can stand in for them

	// Hit returns the server that the next fault hits: the one that leads, or any of equal ones.
	Hit func(*rand.Rand) Server

	All      []Server // those that the faults of all servers hit
	Minority int      // so many of them may be killed at the same time; 0 means 1

	Settle func()         // waits until the servers are well after a fault, or is nil
	Moved  func()         // is called when Addrs have changed
	Shim   *livetest.Shim // of the servers, or of the first of several; nil if there is no compiler
	Nodes  []*redistest.Node

	// Own are the faults that these servers do in their own way, by their names.
	Own map[string]func(Strike)
}

// A Strike is how a director lets a fault happen.
type Strike struct {
	Rand *rand.Rand
	Step time.Duration     // by which a clock is set
	Wait func()            // waits for as long as the fault lasts
	Hold func(fail func()) // calls fail, while a client holds the lock if possible, and records the fault
}

// A Fault is something that goes wrong with servers.
type Fault struct {
	Name, About string
	do          func(*Set, Strike) // nil if each Set that can have it does it in its own way
}

// The faults that set the clock of a server.
const (
	Forward = "store-forward"
	Back    = "store-back"
)

// Faults is the table of the faults of servers.
func Faults() []Fault {
	return []Fault{
		{"store-pause", "the server that leads is stopped (SIGSTOP)", pause},
		{"store-restart", "the server that leads is killed and restarted, with its memory; a node of redlock has none", restart},
		{"store-forget", "the server is killed and restarted, without its memory", func(s *Set, k Strike) {
			k.Hold(func() { s.forget(s.Nodes[0]) })
		}},
		{"forget-quorum", "one node is down when a holder acquires; it comes back, and another one restarts without its memory", forgetQuorum},
		{Forward, "the clock of the server, or of one node of redlock, is set forward", func(s *Set, k Strike) {
			k.Hold(func() { s.Shim.StepClock(k.Step) })
		}},
		{Back, "the clock of the server, or of one node of redlock, is set back", func(s *Set, k Strike) {
			k.Hold(func() { s.Shim.StepClock(-k.Step) })
		}},
		{"disk-full", "the disk of the server is full; if that ends the server, it is restarted then", func(s *Set, k Strike) {
			k.Hold(func() {
				s.Shim.FillDisk(true)
				k.Wait()
				s.Shim.FillDisk(false)
			})
		}},
		{"failover", "the server that leads is killed while a client holds the lock, and another one takes over", nil},
		{"stop-all", "all servers are stopped (SIGSTOP)", stopAll},
		{"fsync", "each fsync on the disk of the first server fails; then it is restarted with a healthy disk", fsync},
		{"flush", "FLUSHALL on the server that leads", func(s *Set, k Strike) {
			k.Hold(func() {
				// A master refuses writes while it knows of no replica.
				livetest.Await(s.T, "FLUSHALL", func() error { _, err := s.Hit(k.Rand).(*redistest.Node).Do("FLUSHALL"); return err })
			})
		}},
		{"kill-session", "an operator ends sessions", nil},
		{"switch-over", "a replica becomes the master in an orderly way", nil},
		{"move-slot", "a slot of the Cluster moves to another master", nil},
		{"partition", "one member can't reach the others, but clients can reach it", nil},
	}
}

// Do does the fault of the table with this name.
func (s *Set) Do(name string, k Strike) {
	if own := s.Own[name]; own != nil {
		own(k)
		return
	}
	for _, f := range Faults() {
		if f.Name == name && f.do != nil {
			f.do(s, k)
			return
		}
	}
	s.T.Fatalf("the servers can't have the fault %q", name)
}

func pause(s *Set, k Strike) {
	server := s.Hit(k.Rand)
	k.Hold(func() {
		server.Hang()
		k.Wait()
		server.Resume()
	})
}

// restart restarts servers at once, before most clients have noticed, or after a while.
func restart(s *Set, k Strike) {
	dead := []Server{s.Hit(k.Rand)}
	if s.Minority > 1 {
		dead = nil
		for _, i := range k.Rand.Perm(len(s.All))[:1+k.Rand.IntN(s.Minority)] {
			dead = append(dead, s.All[i])
		}
	}
	later := k.Rand.IntN(2) == 0
	k.Hold(func() {
		for _, server := range dead {
			server.Kill()
		}
		if later {
			k.Wait()
		}
		for _, server := range dead {
			server.Restart()
		}
	})
}

func stopAll(s *Set, k Strike) {
	k.Hold(func() {
		for _, server := range s.All {
			server.Hang()
		}
		k.Wait()
		for _, server := range s.All {
			server.Resume()
		}
	})
}

// fsync lets a server end, as it has to when its disk fails.
func fsync(s *Set, k Strike) {
	server := s.All[0]
	k.Hold(func() {
		server.MayEnd()
		s.Shim.FailFsync(true)
		k.Wait()
		s.Shim.FailFsync(false)
		server.Kill() // if it still runs
		server.Restart()
	})
}

func forgetQuorum(s *Set, k Strike) {
	n := len(s.Nodes)
	down := k.Rand.IntN(n)
	s.Nodes[down].Kill()
	k.Hold(func() {
		s.Nodes[down].Restart()
		s.forget(s.Nodes[(down+1)%n])
	})
}

// forget restarts a Redis server without its memory.
func (s *Set) forget(n *redistest.Node) {
	n.Kill()
	if err := os.RemoveAll(filepath.Join(n.Dir(), "appendonlydir")); err != nil {
		s.T.Fatalf("remove the data of the server: %v", err)
	}
	for _, file := range []string{"appendonly.aof", "dump.rdb"} { // before Redis 7 the first is one file
		_ = os.Remove(filepath.Join(n.Dir(), file))
	}
	n.Restart()
}

// HasCompiler reports whether there is a C compiler, without which no clock can be set.
func HasCompiler() bool {
	_, err := exec.LookPath("gcc")
	return err == nil
}

// WithShim returns a TB whose servers have a shim, if there is a compiler.
func WithShim(t testing.TB) (testing.TB, *livetest.Shim) {
	if !HasCompiler() {
		return t, nil
	}
	shim := livetest.NewShim(t, "gcc")
	return livetest.WithEnv(t, shim.Env()...), shim
}

// single returns a set of one server.
func single(t testing.TB, shim *livetest.Shim, s Server) *Set {
	return &Set{T: t, Shim: shim, Addrs: []string{s.Addr()}, Hit: func(*rand.Rand) Server { return s }, All: []Server{s}}
}

// List returns servers of one kind as servers of any.
func List[S Server](servers []S) (all []Server) {
	for _, s := range servers {
		all = append(all, s)
	}
	return all
}
