// Package servers starts the servers of stores, and makes them, their clients and the network fail:
// for trials of the lab, and for the nemesis. [Faults] is the table of all faults.
package servers

import (
	"math/rand/v2"
	"os/exec"
	"testing"

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
	Ready() error // nil if the server can be used
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
	Shim   *livetest.Shim // of the servers, or of the first of several; nil if there is no compiler
	Nodes  []*redistest.Node

	// Own are the faults that these servers do in their own way, by their names.
	Own map[string]func(Strike)

	ways [][]*livetest.Proxy // see NewWays
}

// NewWays starts a proxy for each of Addrs. It follows when another server takes the place of its
// server. NewWays returns nil if nobody can stand in for the servers.
func (s *Set) NewWays() (ways []*livetest.Proxy) {
	if s.Direct {
		return nil
	}
	for _, addr := range s.Addrs {
		ways = append(ways, livetest.NewProxy(s.T, addr))
	}
	s.ways = append(s.ways, ways)
	return ways
}

// move lets all ways lead to Addrs, which have changed.
func (s *Set) move() {
	for _, ways := range s.ways {
		for i, way := range ways {
			way.Redirect(s.Addrs[i])
			way.Cut()
		}
	}
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
