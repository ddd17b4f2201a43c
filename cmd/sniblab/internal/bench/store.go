package main

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

// A store is what a peer runs on: a server, several servers that are used together, or a file.
type store struct {
	addrs   []string // of the servers, as host:port, or the path of the file
	about   string   // the kind and the version, such as "PostgreSQL 15.18"
	servers []*livetest.Process
	redis   []*redisServer // the same servers, if they are Redis
}

func (s *store) stop() {
	for _, r := range s.redis {
		_ = r.control.Close()
	}
	for _, p := range s.servers {
		p.Kill() // nothing that it has is needed
	}
}

// breakServers kills the first servers and hangs the next ones.
func (s *store) breakServers(killed, hung int) {
	for i, p := range s.servers[:killed+hung] {
		if i < killed {
			p.Kill()
		} else {
			p.Hang()
		}
	}
}

// without returns the store without its first n servers.
func (s *store) without(n int) *store {
	rest := &store{addrs: s.addrs[n:], about: s.about}
	if len(s.servers) > 0 {
		rest.servers = s.servers[n:]
	}
	if len(s.redis) > 0 {
		rest.redis = s.redis[n:]
	}
	return rest
}

// counters contains what servers have used and counted since their start.
type counters struct {
	CPU time.Duration
	// NaN if the servers are not Redis.
	Commands float64 // executed, including those in scripts
	Reads    float64 // from sockets
	Keys     float64 // present now
}

// counters reads the counters of all servers together.
func (s *store) counters(ctx context.Context) (sum counters, err error) {
	if len(s.redis) == 0 {
		sum = counters{Commands: math.NaN(), Reads: math.NaN(), Keys: math.NaN()}
	}
	for _, r := range s.redis {
		c, err := r.counters(ctx)
		if err != nil {
			return sum, err
		}
		sum.Commands += c.Commands
		sum.Reads += c.Reads
		sum.Keys += c.Keys
	}
	for _, p := range s.servers {
		sum.CPU += p.CPU()
	}
	return sum, nil
}

// since returns what was counted between two readings of a number of servers. It leaves out the
// readings themselves: a server of Redis counts the command of the first one after the answer,
// and the socket read of the second one before it.
func (c counters) since(before counters, servers int) counters {
	return counters{
		CPU:      c.CPU - before.CPU,
		Commands: c.Commands - before.Commands - float64(servers),
		Reads:    c.Reads - before.Reads - float64(servers),
		Keys:     c.Keys,
	}
}

// versionOf connects to a server that has just started and returns the answer of ask.
func versionOf(t testing.TB, kind string, ask func(context.Context) (string, error)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	version, err := ask(ctx)
	if err == nil && version == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		t.Fatalf("version of %s: %v", kind, err)
	}
	return kind + " " + strings.FieldsFunc(version, func(r rune) bool { return r == ' ' || r == '-' })[0] // without the packager's name
}
