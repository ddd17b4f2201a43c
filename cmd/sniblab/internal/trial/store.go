package trial

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// A StoreKind is a kind of store that the lab starts for a target.
type StoreKind string

// The kinds of stores.
const (
	Redis         StoreKind = "redis"
	Sentinel      StoreKind = "sentinel"
	Cluster       StoreKind = "cluster"
	Redlock       StoreKind = "redlock"
	Postgres      StoreKind = "postgres"
	PgBouncer     StoreKind = "pgbouncer"
	PostgresSync  StoreKind = "postgres-sync"
	PostgresAsync StoreKind = "postgres-async"
	MySQL         StoreKind = "mysql"
	MySQLSync     StoreKind = "mysql-semisync"
	MySQLAsync    StoreKind = "mysql-async"
	Etcd          StoreKind = "etcd"
	EtcdCluster   StoreKind = "etcd-cluster"
	ZooKeeper     StoreKind = "zookeeper"
	ZooKeepers    StoreKind = "zookeeper-ensemble"
	File          StoreKind = "file"
	None          StoreKind = "none"
)

// A storeType says what there is to know about a kind of store.
type storeType struct {
	kind  StoreKind
	about string
	url   string         // with ADDRS in place of the addresses; "" if there is no server
	needs []string       // the servers that must be installed
	has   []servers.Need // what faults may need
	start func(testing.TB) *servers.Set

	// numbered says that the store can't be emptied, or that this would itself be a fault, so that
	// each trial has a lock of its own.
	numbered bool
}

// storeTypes are all kinds of stores. The first one is the default.
func storeTypes() []storeType {
	pg := "postgres://" + pgtest.User + ":" + pgtest.Password() + "@ADDRS/" + postgresDatabase + "?sslmode=disable"
	mysql := "mysql://" + mysqltest.User + ":" + mysqltest.Password() + "@ADDRS/" + mysqltest.Database
	single := slices.Clip([]servers.Need{servers.AServer, servers.AnOwnWay})
	several := slices.Concat(single, []servers.Need{servers.AReplica})
	return []storeType{
		{kind: Redis, about: "a Redis server, which keeps its data through a restart", url: "redis://ADDRS", needs: []string{"redis"}, has: append(single, servers.ToForget, servers.AClock, servers.ADisk), start: func(t testing.TB) *servers.Set { return servers.Redis(t, "appendonly yes") }},
		{kind: Sentinel, about: "a Redis master and a replica, which three Sentinels watch", url: "redis+sentinel://ADDRS/mymaster", needs: []string{"redis"}, has: []servers.Need{servers.AServer, servers.AReplica}, start: startSentinel, numbered: true},
		{kind: Cluster, about: "a Redis Cluster: three masters, with a replica each", url: "redis+cluster://ADDRS", needs: []string{"redis"}, has: []servers.Need{servers.AServer, servers.AReplica}, start: func(t testing.TB) *servers.Set { return servers.Cluster(t, []string{lockName}, "appendonly yes") }},
		{kind: Redlock, about: "three independent Redis servers, which keep nothing through a restart", url: "redlock://ADDRS", needs: []string{"redis"}, has: append(single, servers.AMajority, servers.AClock), start: func(t testing.TB) *servers.Set { return servers.Redlock(t, 3) }},
		{kind: Postgres, about: "a PostgreSQL server", url: pg, needs: []string{"postgres"}, has: append(single, servers.AClock, servers.ADisk), start: servers.Postgres},
		{kind: PgBouncer, about: "a PostgreSQL server behind PgBouncer in transaction mode", url: pg, needs: []string{"postgres", "pgbouncer"}, has: single, start: servers.PgBouncer},
		{kind: PostgresSync, about: "a PostgreSQL server and its synchronous standby", url: pg, needs: []string{"postgres"}, has: several, start: func(t testing.TB) *servers.Set { return servers.Replicated(t, servers.PostgresPair(t, true)) }},
		{kind: PostgresAsync, about: "a PostgreSQL server and its asynchronous standby, which lags when it takes over", url: pg, needs: []string{"postgres"}, has: several, start: func(t testing.TB) *servers.Set { return servers.Replicated(t, servers.PostgresPair(t, false)) }},
		{kind: MySQL, about: "a MariaDB server", url: mysql, needs: []string{"mysql"}, has: append(single, servers.AClock, servers.ADisk), start: servers.MySQL, numbered: true},
		{kind: MySQLSync, about: "a MariaDB server and its semi-synchronous replica", url: mysql, needs: []string{"mysql"}, has: several, start: func(t testing.TB) *servers.Set { return servers.Replicated(t, servers.MySQLPair(t, true)) }, numbered: true},
		{kind: MySQLAsync, about: "a MariaDB server and its asynchronous replica, which lags when it takes over", url: mysql, needs: []string{"mysql"}, has: several, start: func(t testing.TB) *servers.Set { return servers.Replicated(t, servers.MySQLPair(t, false)) }, numbered: true},
		{kind: Etcd, about: "an etcd server", url: "etcd://ADDRS", needs: []string{"etcd"}, has: single, start: servers.Etcd, numbered: true},
		{kind: EtcdCluster, about: "three etcd servers", url: "etcd://ADDRS", needs: []string{"etcd"}, has: several, start: servers.EtcdCluster, numbered: true},
		{kind: ZooKeeper, about: "a ZooKeeper server", url: "zk://ADDRS", needs: []string{"zookeeper"}, has: append(single, servers.ADisk), start: servers.ZooKeeper, numbered: true},
		{kind: ZooKeepers, about: "three ZooKeeper servers", url: "zk://ADDRS", needs: []string{"zookeeper"}, has: several, start: servers.ZooKeepers, numbered: true},
		{kind: File, about: "the path of a file that does not exist yet"},
		{kind: None, about: "the target has its own"},
	}
}

// Stores returns all kinds of stores. The first one is the default.
func Stores() []StoreKind {
	var all []StoreKind
	for _, s := range storeTypes() {
		all = append(all, s.kind)
	}
	return all
}

// of returns what there is to know about a kind.
func (k StoreKind) of() storeType {
	all := storeTypes()
	return all[max(0, slices.IndexFunc(all, func(s storeType) bool { return s.kind == k }))]
}

// About describes a kind in a few words.
func (k StoreKind) About() string { return k.of().about }

// programs checks by their names in SNIB_REQUIRE whether servers are installed.
var programs = map[string]func(testing.TB) string{
	"redis": redistest.Program, "postgres": pgtest.Program, "pgbouncer": pgtest.PoolProgram, "mysql": mysqltest.Program,
	"etcd": etcdtest.Program, "zookeeper": zktest.Java,
}

// Missing returns why the lab can't start a store on this machine, as a [*livetest.MissingError],
// or nil if it can.
func (k StoreKind) Missing() error {
	return livetest.Outside(func(t testing.TB) error {
		for _, name := range k.of().needs {
			programs[name](t)
		}
		return nil
	})
}

// A store is the store of a target.
type store struct {
	*servers.Set // nil if there are none

	t     testing.TB
	c     Target
	about storeType
	ways  [len(names)][]*livetest.Proxy // of the clients, to each server; empty if the lab is not on their way
	file  string                        // or ""

	clientClocks [len(names)]*livetest.Shim // nil if they can't be set
	trials       int                        // so many have begun
}

// openStore starts a store. It ends with t.
func openStore(t testing.TB, c Target) *store {
	s := &store{t: t, c: c, about: c.Store.of()}
	if c.LibcClock && servers.HasCompiler() {
		for i := range s.clientClocks {
			s.clientClocks[i] = livetest.NewShim(t, "gcc")
		}
	}
	if s.about.start == nil {
		return s
	}
	s.Set = s.about.start(t)
	for i := range s.ways {
		if c.OneWay && i > 0 {
			s.ways[i] = s.ways[0]
		} else {
			s.ways[i] = s.NewWays()
		}
	}
	return s
}

// allWays returns the ways of all clients, each once.
func (s *store) allWays() []*livetest.Proxy {
	if s.c.OneWay {
		return s.ways[0]
	}
	return slices.Concat(s.ways[:]...)
}

// empty removes all data, or sees to it that the next trial does not meet them.
func (s *store) empty(ctx context.Context) error {
	s.trials++
	s.heal()
	s.resetClocks()
	s.reviveAny()
	if s.c.Store == File {
		s.file = filepath.Join(s.t.TempDir(), "locks.db")
	}
	s.clear()
	if s.c.Prepare != nil {
		return s.c.Prepare(ctx, s.url(0))
	}
	return nil
}

// clear removes all data, where that is no loss of memory for the target.
func (s *store) clear() {
	switch s.c.Store {
	case Redis, Redlock:
		for _, n := range s.Nodes {
			n.Must("FLUSHALL")
		}
	case Cluster:
		for _, n := range s.Nodes {
			_, _ = n.Do("FLUSHALL") // a replica refuses it
		}
	case Sentinel:
		if s.c.IsControl() { // snib would wait for 20 s
			s.Hit(nil).(*redistest.Node).Must("FLUSHALL")
		}
	case Postgres, PgBouncer, PostgresSync, PostgresAsync:
		emptyPostgres(s.t, s.Hit(nil).Addr(), s.c)
	}
}

// postgresDatabase is the database of a trial.
const postgresDatabase = "lab"

// emptyPostgres replaces the database, whoever still uses it.
func emptyPostgres(t testing.TB, addr string, c Target) {
	err := execPostgres(addr, "postgres", "DROP DATABASE IF EXISTS "+postgresDatabase+" WITH (FORCE)", "CREATE DATABASE "+postgresDatabase)
	if err == nil && c.IsControl() {
		err = execPostgres(addr, postgresDatabase, pattern.PostgresSchema, "INSERT INTO articles VALUES (1, 100)")
	}
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
}

// execPostgres executes statements in a database of a PostgreSQL server.
func execPostgres(addr, database string, statements ...string) error {
	return servers.ExecPostgres(strings.Replace(pgtest.URL(addr), "/postgres?", "/"+database+"?", 1), statements...)
}

func startSentinel(t testing.TB) *servers.Set {
	s, _ := servers.Sentinel(t, "appendonly yes")
	return s
}

// resetClocks ends what earlier trials have done to clocks: the schedule of a trial is all that it
// needs to be repeated.
func (s *store) resetClocks() {
	for _, shim := range s.clientClocks {
		if shim != nil {
			shim.SetClock(0)
		}
	}
	if s.Set != nil && s.Shim != nil {
		s.Shim.SetClock(0)
	}
}

// lockName returns the name of the lock in the store.
func (s *store) lockName() string {
	if s.about.numbered {
		return fmt.Sprint(lockName, s.trials)
	}
	return lockName
}

// url returns the URL of the store for a client.
func (s *store) url(client int) string {
	if s.Set == nil {
		return s.file
	}
	addrs := s.Addrs
	if ways := s.ways[client]; len(ways) > 0 {
		addrs = nil
		for _, way := range ways {
			addrs = append(addrs, way.Addr())
		}
	}
	return strings.Replace(s.about.url, "ADDRS", strings.Join(addrs, ","), 1)
}

// heal ends all faults of the network.
func (s *store) heal() {
	for _, way := range s.allWays() {
		way.Heal()
	}
}
