package main

import (
	"bufio"
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/internal/livetest/redistest"
)

// A redisServer is our own Redis server.
type redisServer struct {
	*redistest.Node
	control *redis.Client // one connection; it sends no commands of its own
}

// startRedis returns a start for a number of independent servers with lines of configuration. By
// default they keep nothing on disk.
func startRedis(n int, conf ...string) func(testing.TB) *store {
	return func(t testing.TB) *store {
		t.Helper()
		s := new(store)
		for range n {
			node := redistest.Single(t, conf...)
			control := redis.NewClient(&redis.Options{Addr: node.Addr(), PoolSize: 1, MaxRetries: -1})
			s.addrs, s.servers = append(s.addrs, node.Addr()), append(s.servers, node.Process)
			s.redis = append(s.redis, &redisServer{node, control})
		}
		info := s.redis[0].Info("server")
		s.about = "Redis " + info["redis_version"]
		if version := info["valkey_version"]; version != "" {
			s.about = "Valkey " + version
		}
		if len(conf) > 0 {
			s.about += " with " + strings.Join(conf, ", ")
		}
		return s
	}
}

// used makes the servers of a store look as if they had been used for a long time. Otherwise
// redislock would grant nothing before they are older than the TTL.
func used(start func(testing.TB) *store) func(testing.TB) *store {
	return func(t testing.TB) *store {
		t.Helper()
		s := start(t)
		s.use()
		return s
	}
}

func (s *store) use() {
	for _, r := range s.redis {
		r.Used()
	}
}

// empty removes all keys.
func (s *store) empty(ctx context.Context) error {
	for _, r := range s.redis {
		if err := r.control.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	s.use()
	return nil
}

// counters reads what the server has counted since its start.
func (s *redisServer) counters(ctx context.Context) (c counters, err error) {
	text, err := s.control.Info(ctx, "everything").Result()
	if err != nil {
		return c, err
	}
	info := parseInfo(text)
	c.Reads = parseCount(info["total_reads_processed"])
	c.Keys = listField(info["db0"], "keys")
	for key, value := range info {
		if strings.HasPrefix(key, "cmdstat_") {
			c.Commands += listField(value, "calls")
		}
	}
	return c, nil
}

// countKeysLeft returns how many keys of locks are left on the servers. It does not count the hash
// in which snib keeps its counters.
func (s *store) countKeysLeft(ctx context.Context) (left int64, err error) {
	for _, r := range s.redis {
		keys, err := r.control.DBSize(ctx).Result()
		if err != nil {
			return left, err
		}
		own, err := r.control.Exists(ctx, "snib.redlock").Result()
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
func listField(list, name string) float64 {
	for part := range strings.SplitSeq(list, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return parseCount(value)
		}
	}
	return 0
}

func parseCount(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64) // 0 if the server does not report it
	return n
}
