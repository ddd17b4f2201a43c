package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
)

// stores compares snib on one store with snib on another. Several client processes lock keys of
// their own, or contend for one key. Redis saves nothing; all other stores wait for the disk.
func stores() scenario {
	return scenario{
		name: "stores",
		variants: []variant{
			{name: "4 processes of 1 goroutine, own keys", procs: 4, load: load{Goroutines: 1, Keys: 1}, window: 3 * time.Second},
			{name: "4 processes of 64 goroutines, own keys", procs: 4, load: load{Goroutines: 64, Keys: 1}, window: 3 * time.Second},
			{name: "4 processes of 1 goroutine, one key", procs: 4, load: load{Goroutines: 1}, window: 3 * time.Second},
			{name: "4 processes of 16 goroutines, one key", procs: 4, load: load{Goroutines: 16}, window: 3 * time.Second},
		},
		columns: storeColumns(),
	}
}

// persistence compares Redis that saves nothing with Redis that appends each write to a file
// (AOF), and waits for the disk once a second, or before each answer.
func persistence() scenario {
	return scenario{
		name: "persistence",
		variants: []variant{
			{name: "1 process of 1 goroutine, own key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 3 * time.Second},
			{name: "4 processes of 64 goroutines, own keys", procs: 4, load: load{Goroutines: 64, Keys: 1}, window: 3 * time.Second},
		},
		columns: storeColumns(),
	}
}

func storeColumns() []column {
	return []column{
		perSecond(),
		waited(waitP50, 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited(waitP99, 99, time.Microsecond),
		waited("longest", 100, time.Microsecond),
		longestWaiting(), leastOfProcesses(), mostOfProcesses(),
		overlaps(), allocsPerOp(), clientCPUPerOp(),
	}
}

// waitP50 and waitP99 are the titles of the columns that charts show.
const waitP50, waitP99 = "acq p50 µs", "p99"

// storePeers returns the peers of stores and persistence: snib with its default options, each on
// a store of its own.
func storePeers() []peer {
	both, one, other := []string{"stores", "persistence"}, []string{"stores"}, []string{"persistence"}
	everySecond, always := []string{"appendonly yes", "appendfsync everysec"}, []string{"appendonly yes", "appendfsync always"}
	return []peer{
		{name: "sqlite", role: ours, only: one, start: startSQLite, open: openSQLite},
		{name: "redis", role: ours, only: both, start: startRedis(), open: openSnib},
		{name: "redis-everysec", role: ours, only: other, start: startRedis(everySecond...), open: openSnib},
		{name: "redis-always", role: ours, only: other, start: startRedis(always...), open: openSnib},
		{name: "redlock", role: ours, only: both, start: startRedlock(), open: openRedlock},
		{name: "redlock-everysec", role: ours, only: other, start: startRedlock(everySecond...), open: openRedlock},
		{name: "redlock-always", role: ours, only: other, start: startRedlock(always...), open: openRedlock},
		{name: "postgres", role: ours, only: one, start: startPostgres, open: openPostgres},
		{name: "mysql", role: ours, only: one, start: startMySQL, open: openMySQL},
		{name: "zookeeper", role: ours, only: one, start: addrOnly(startZooKeeper), open: openSnibZooKeeper},
		{name: "etcd", role: ours, only: one, start: addrOnly(startEtcd), open: openSnibEtcd},
	}
}

// addrOnly returns start for a server that runs until the end of the program.
func addrOnly(start func(testing.TB) (addr string, p *livetest.Process)) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		addr, _ := start(t)
		return addr
	}
}

func startSQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "locks.db")
}

func openSQLite(s setup) (*client, error) {
	d, err := sqlitelock.Open(context.Background(), s.addr)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// startRedis returns a start for a server with lines of configuration. The server grants locks at
// once, because it looks as if it had been used for a long time.
func startRedis(conf ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		return redistest.Single(t, conf...).Used().Addr()
	}
}

// startRedlock returns a start for five nodes with lines of configuration.
func startRedlock(conf ...string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		var addrs []string
		for range 5 {
			addrs = append(addrs, redistest.Single(t, conf...).Addr())
		}
		// Here, because only one client may initialize nodes.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := redlock.Admin(nodeOptions(addrs)).Init(ctx); err != nil {
			t.Fatalf("initialize the nodes: %v", err)
		}
		return strings.Join(addrs, ",")
	}
}

func openRedlock(s setup) (*client, error) {
	s.nodes = strings.Split(s.addr, ",")
	return openSnibOverNodes(s)
}

func nodeOptions(addrs []string) (servers []rueidis.ClientOption) {
	for _, addr := range addrs {
		servers = append(servers, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return servers
}

func startPostgres(t testing.TB) string {
	t.Helper()
	return pgtest.Start(t).URL()
}

func openPostgres(s setup) (*client, error) {
	pool, err := pgxpool.New(context.Background(), s.addr)
	if err != nil {
		return nil, err
	}
	d, err := pglock.New(pool)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

func startMySQL(t testing.TB) string {
	t.Helper()
	return mysqltest.Start(t).DSN()
}

func openMySQL(s setup) (*client, error) {
	conf, err := mysql.ParseDSN(s.addr)
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(conf)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(64) // more than the driver uses: no connection is closed and opened again
	d, err := mysqllock.New(db)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}
