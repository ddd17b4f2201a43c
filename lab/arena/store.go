package arena

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A store is the store of a contestant. Each client reaches it by a way of its own.
type store struct {
	t    testing.TB
	c    Contestant
	node *redistest.Node             // nil if there is no server
	ways [len(names)]*livetest.Proxy // of the clients; nil if there is no server
	file string                      // or ""
}

// openStore starts a store. It ends with t.
func openStore(t testing.TB, c Contestant) *store {
	s := &store{t: t, c: c}
	if c.Store == Redis {
		s.node = redistest.Single(t, "appendonly yes")
		for i := range s.ways {
			s.ways[i] = livetest.NewProxy(t, s.node.Addr())
		}
	}
	return s
}

// empty removes all data.
func (s *store) empty() {
	switch s.c.Store {
	case Redis:
		s.heal()
		s.node.Must("FLUSHALL")
	case File:
		s.file = filepath.Join(s.t.TempDir(), "locks.db")
	case None:
	}
}

// url returns the URL of the store for a client.
func (s *store) url(client int) string {
	switch s.c.Store {
	case Redis:
		return "redis://" + s.ways[client].Addr() + s.c.Query
	case File:
		return s.c.Scheme + s.file + s.c.Query
	default:
		return s.c.Scheme + s.c.Query
	}
}

// heal ends all faults of the network.
func (s *store) heal() {
	for _, way := range s.ways {
		if way != nil {
			way.Heal()
		}
	}
}

// forget restarts the server without its memory.
func (s *store) forget() {
	s.node.Kill()
	if err := os.RemoveAll(filepath.Join(s.node.Dir(), "appendonlydir")); err != nil {
		s.t.Fatalf("remove the data of the server: %v", err)
	}
	_ = os.Remove(filepath.Join(s.node.Dir(), "appendonly.aof")) // before Redis 7 it is one file
	s.node.Restart()
}

// endless counts the keys that never end.
func (s *store) endless() (n int) {
	if s.node == nil {
		return 0
	}
	keys, _ := s.node.Must("KEYS", "*").([]any)
	for _, key := range keys {
		if s.node.Must("PTTL", fmt.Sprint(key)) == int64(-1) {
			n++
		}
	}
	return n
}
