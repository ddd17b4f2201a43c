package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A server is our own Redis server. It keeps nothing on disk.
type server struct {
	*redistest.Node
	control *redis.Client // one connection; it sends no commands of its own
}

func startServer(t testing.TB) *server {
	t.Helper()
	s := &server{Node: redistest.Single(t)}
	s.control = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: 1, MaxRetries: -1})
	t.Cleanup(s.stop)
	return s
}

// startServers starts n independent servers.
func startServers(t testing.TB, n int) (servers []*server) {
	t.Helper()
	for range n {
		servers = append(servers, startServer(t))
	}
	return servers
}

func (s *server) stop() {
	_ = s.control.Close()
	s.Kill() // it has nothing to save
}

func addresses(servers []*server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// breakServers kills the first servers and hangs the next ones.
func breakServers(servers []*server, killed, hung int) {
	for i, s := range servers[:killed+hung] {
		if i < killed {
			s.Kill()
		} else {
			s.Hang()
		}
	}
}

// counters contains what a server has counted since its start.
type counters struct {
	Commands int64 // executed, including those in scripts
	Reads    int64 // from sockets
	CPU      time.Duration
	Keys     int64 // present now
}

func (s *server) counters(ctx context.Context) (counters, error) {
	text, err := s.control.Info(ctx, "everything").Result()
	if err != nil {
		return counters{}, err
	}
	info := parseInfo(text)
	c := counters{Reads: parseCount(info["total_reads_processed"])}
	for key, value := range info {
		if strings.HasPrefix(key, "cmdstat_") {
			c.Commands += listField(value, "calls")
		}
	}
	for _, key := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info[key], 64)
		if err != nil {
			return counters{}, fmt.Errorf("the server's %s: %w", key, err)
		}
		c.CPU += time.Duration(seconds * float64(time.Second))
	}
	c.Keys = listField(info["db0"], "keys")
	return c, nil
}

// since returns what the server counted between two readings. It leaves out the readings
// themselves: the server counts the command of the first one after the answer, and the socket
// read of the second one before it.
func (c counters) since(before counters) counters {
	return counters{
		Commands: c.Commands - before.Commands - 1,
		Reads:    c.Reads - before.Reads - 1,
		CPU:      c.CPU - before.CPU,
		Keys:     c.Keys,
	}
}

// sumCounters returns the sums of the counters of several servers.
func sumCounters(ctx context.Context, servers []*server) (sum counters, err error) {
	for _, s := range servers {
		c, err := s.counters(ctx)
		if err != nil {
			return sum, err
		}
		sum.Commands += c.Commands
		sum.Reads += c.Reads
		sum.CPU += c.CPU
		sum.Keys += c.Keys
	}
	return sum, nil
}

// countKeysLeft returns how many keys of locks are left on servers. It does not count the hash in
// which snib keeps its counters.
func countKeysLeft(ctx context.Context, servers []*server) (left int64, err error) {
	for _, s := range servers {
		keys, err := s.control.DBSize(ctx).Result()
		if err != nil {
			return left, err
		}
		own, err := s.control.Exists(ctx, "snib.redlock").Result()
		if err != nil {
			return left, err
		}
		left += keys - own
	}
	return left, nil
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// listField returns a number from a list such as "calls=1,usec=2", or 0 if it has
// no such field.
func listField(list, name string) int64 {
	for part := range strings.SplitSeq(list, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return parseCount(value)
		}
	}
	return 0
}

func parseCount(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // 0 if the server does not report it
	return n
}
