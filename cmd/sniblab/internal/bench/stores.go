package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
)

// stores compares snib on one store with snib on another. Redis saves nothing; all other stores
// wait for the disk.
func stores() scenario {
	load := func(name string, goroutines, names int) variant {
		return variant{name: "4 processes of " + name, procs: 4, load: load{Goroutines: goroutines, Keys: names}, window: 2 * time.Second}
	}
	return scenario{
		name:  "stores",
		about: "Four processes lock names of their own, or contend for one, with snib on each store. Redis saves nothing, and all other stores wait for the disk.",
		peers: []peer{
			{name: "sqlite", role: ours, local: true, start: startSQLite, open: openSQLite, about: "sqlitelock"},
			{name: "redis", role: ours, start: used(startRedis(1)), open: openSnib, about: "redislock"},
			{name: "redlock", role: ours, start: startRedlock(), open: openRedlock, about: "redlock over five servers"},
			{name: "postgres", role: ours, start: startPostgres, open: openPostgres(newPostgresRows), about: "pglock, in rows"},
			{name: "mysql", role: ours, start: startMariaDB, open: openMariaDB(mysqllock.New), about: "mysqllock, in rows"},
			{name: "zookeeper", role: ours, start: startZooKeeper, open: openSnibZooKeeper, about: "zklock"},
			{name: "etcd", role: ours, start: startEtcd, open: openSnibEtcd, about: "etcdlock"},
		},
		variants: []variant{
			load("1 goroutine, own names", 1, 1), load("64 goroutines, own names", 64, 1),
			load("1 goroutine, one name", 1, 0), load("16 goroutines, one name", 16, 0),
		},
		columns: storeColumns(),
	}
}

// persistence compares Redis that saves nothing with Redis that appends each write to a file
// (AOF).
func persistence() scenario {
	everySecond, always := []string{"appendonly yes", "appendfsync everysec"}, []string{"appendonly yes", "appendfsync always"}
	return scenario{
		name:  "persistence",
		about: "Processes lock names of their own with snib, on Redis that saves nothing, and on Redis that appends to a file (AOF) and waits for the disk once a second, or before each answer.",
		peers: []peer{
			{name: "redis", role: ours, start: used(startRedis(1)), open: openSnib, about: "redislock"},
			{name: "redis-everysec", role: ours, start: used(startRedis(1, everySecond...)), open: openSnib, about: "redislock, appendfsync everysec"},
			{name: "redis-always", role: ours, start: used(startRedis(1, always...)), open: openSnib, about: "redislock, appendfsync always"},
			{name: "redlock", role: ours, start: startRedlock(), open: openRedlock, about: "redlock over five servers"},
			{name: "redlock-everysec", role: ours, start: startRedlock(everySecond...), open: openRedlock, about: "the same, appendfsync everysec"},
			{name: "redlock-always", role: ours, start: startRedlock(always...), open: openRedlock, about: "the same, appendfsync always"},
		},
		variants: []variant{
			{name: "1 process of 1 goroutine, own name", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 2 * time.Second},
			{name: "4 processes of 64 goroutines, own names", procs: 4, load: load{Goroutines: 64, Keys: 1}, window: 2 * time.Second},
		},
		columns: storeColumns(),
	}
}

func startSQLite(t testing.TB) *store {
	t.Helper()
	return &store{addrs: []string{filepath.Join(t.TempDir(), "locks.db")}}
}

func openSQLite(s setup) (*client, error) {
	d, err := sqlitelock.Open(context.Background(), s.addr())
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// startRedlock returns a start for five nodes with lines of configuration, which are initialized,
// because only one client may do that.
func startRedlock(conf ...string) func(testing.TB) *store {
	return func(t testing.TB) *store {
		t.Helper()
		s := startRedis(5, conf...)(t)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := redlock.Admin(nodeOptions(s.addrs)).Init(ctx); err != nil {
			t.Fatalf("initialize the nodes: %v", err)
		}
		return s
	}
}

// openRedlock opens snib over several servers, which it initializes unless that was done.
func openRedlock(s setup) (*client, error) {
	servers := nodeOptions(s.addrs)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := redlock.Admin(servers).Init(ctx); err != nil {
		return nil, err
	}
	d, err := redlock.Open(ctx, servers)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

func nodeOptions(addrs []string) (servers []rueidis.ClientOption) {
	for _, addr := range addrs {
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return servers
}
