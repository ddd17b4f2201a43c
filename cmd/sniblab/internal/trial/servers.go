package trial

import (
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/pair"
	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// servers are the servers of a store.
type servers struct {
	addrs  []string // that clients are given
	direct bool     // clients learn addresses from the servers, so the lab is not on their way

	// hit returns the server that the next fault hits: the one that leads, or any of equal ones.
	hit func(*rand.Rand) pair.Server

	// settle waits until the servers are well after a fault. It may be nil.
	settle func()

	// failover has another server replace the one that leads. It calls hold with what makes the
	// leader fail; hold may first have a client acquire the lock.
	failover func(hold func(fail func()))

	// moved is called when addrs have changed. The store sets it.
	moved func()

	shim *livetest.Shim // of the servers, or of one of several; nil if there is no compiler

	clear func(Target)      // removes all data; nil if that can't be done
	nodes []*redistest.Node // of which one can forget what it has
	leaky []*redistest.Node // whose keys are to end
}

func always(s pair.Server) func(*rand.Rand) pair.Server {
	return func(*rand.Rand) pair.Server { return s }
}

// hasCompiler reports whether there is a C compiler, without which no clock can be set.
func hasCompiler() bool {
	_, err := exec.LookPath("gcc")
	return err == nil
}

// withShim returns a TB whose servers have a shim, if there is a compiler.
func withShim(t testing.TB) (testing.TB, *livetest.Shim) {
	if !hasCompiler() {
		return t, nil
	}
	shim := livetest.NewShim(t, "gcc")
	return livetest.WithEnv(t, shim.Env()...), shim
}

func startRedis(t testing.TB) *servers {
	t, shim := withShim(t)
	node := redistest.Single(t, "appendonly yes")
	all := []*redistest.Node{node}
	return &servers{addrs: []string{node.Addr()}, hit: always(node), clear: flush(all), nodes: all,
		leaky: all, shim: shim}
}

func flush(nodes []*redistest.Node) func(Target) {
	return func(Target) {
		for _, n := range nodes {
			n.Must("FLUSHALL")
		}
	}
}

// forget restarts a Redis server without its memory.
func forget(t testing.TB, n *redistest.Node) {
	n.Kill()
	if err := os.RemoveAll(filepath.Join(n.Dir(), "appendonlydir")); err != nil {
		t.Fatalf("remove the data of the server: %v", err)
	}
	for _, file := range []string{"appendonly.aof", "dump.rdb"} { // before Redis 7 the first is one file
		_ = os.Remove(filepath.Join(n.Dir(), file))
	}
	n.Restart()
}

func startRedlock(t testing.TB) *servers {
	first, shim := withShim(t)
	s := &servers{shim: shim}
	for _, t := range []testing.TB{first, t, t} {
		n := redistest.Single(t)
		s.nodes, s.addrs = append(s.nodes, n), append(s.addrs, n.Addr())
	}
	s.clear = flush(s.nodes)
	s.hit = func(rng *rand.Rand) pair.Server { return s.nodes[rng.IntN(len(s.nodes))] }
	return s
}

// startSentinel starts a master and a replica. When a master fails, its replica has not yet heard
// of the latest changes.
func startSentinel(t testing.TB) *servers {
	s := redistest.Sentinel(t, "appendonly yes")
	return &servers{
		addrs: s.Sentinels(), direct: true,
		hit:    func(*rand.Rand) pair.Server { return s.Master() },
		settle: s.WaitForReplicas,
		clear: func(c Target) {
			if c.IsControl() { // for snib it would be a loss of memory, after which it waits for 20 s
				s.Master().Must("FLUSHALL")
			}
		},
		failover: func(hold func(func())) {
			master := s.Master()
			var replica *redistest.Node
			for _, n := range s.Nodes() {
				if n != master {
					replica = n
				}
			}
			replica.Hang()
			master.Must("CLIENT", "KILL", "TYPE", "slave")
			hold(func() {
				master.Kill()
				replica.Resume()
				livetest.Await(t, "failover", func() error {
					_, err := s.SentinelNodes()[0].Do("SENTINEL", "FAILOVER", s.MasterName())
					return err
				})
				s.WaitForFailover(master)
			})
			master.Restart()
			s.WaitForReplicas()
		},
	}
}

func startCluster(t testing.TB) *servers {
	c := redistest.Cluster(t, "appendonly yes")
	slot := c.SlotOf(lockName)
	return &servers{
		addrs: c.Addrs(), direct: true,
		hit:    func(*rand.Rand) pair.Server { return c.MasterOf(slot) },
		settle: c.WaitUntilWell,
		clear: func(Target) {
			for _, n := range c.Nodes() {
				_, _ = n.Do("FLUSHALL") // a replica refuses it
			}
		},
		failover: func(hold func(func())) {
			var old *redistest.Node
			hold(func() {
				old = c.KillMasterOf(slot)
				c.WaitForFailover(slot, old)
			})
			old.Restart()
			c.WaitUntilWell()
		},
	}
}

func startPostgres(t testing.TB) *servers {
	t, shim := withShim(t)
	s := pgtest.Start(t)
	return &servers{
		addrs: []string{s.Addr()}, hit: always(s), shim: shim,
		clear: func(c Target) { emptyPostgres(t, s.Addr(), c) },
	}
}

func startPgBouncer(t testing.TB) *servers {
	s := pgtest.Start(t)
	pool := pgtest.Pool(t, s, "transaction")
	return &servers{
		addrs: []string{pool.Addr()}, hit: always(s),
		clear: func(c Target) { emptyPostgres(t, s.Addr(), c) },
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
	return pair.ExecPostgres(strings.Replace(pgtest.URL(addr), "/postgres?", "/"+database+"?", 1), statements...)
}

// startReplicatedPostgres returns how to start a primary with a standby.
func startReplicatedPostgres(synchronous bool) func(testing.TB) *servers {
	return func(t testing.TB) *servers {
		p := pair.Postgres(t, synchronous)
		s := pairSet(p)
		s.clear = func(c Target) { emptyPostgres(t, p.Primary.Addr(), c) }
		return s
	}
}

// startReplicatedMySQL returns how to start a MariaDB with a replica.
func startReplicatedMySQL(synchronous bool) func(testing.TB) *servers {
	return func(t testing.TB) *servers {
		return pairSet(pair.MySQL(t, synchronous))
	}
}

func pairSet(p *pair.Pair) *servers {
	s := &servers{addrs: []string{p.Primary.Addr()}, hit: func(*rand.Rand) pair.Server { return p.Primary }}
	s.failover = func(hold func(func())) {
		p.Failover(func() {
			s.addrs[0] = p.Primary.Addr()
			s.moved()
		}, hold)
	}
	return s
}

func startMySQL(t testing.TB) *servers {
	t, shim := withShim(t)
	s := mysqltest.Start(t)
	return &servers{addrs: []string{s.Addr()}, hit: always(s), shim: shim}
}

// etcdFlags make leases of a second possible: the shortest is three halves of the election
// timeout, in whole seconds.
var etcdFlags = []string{"--heartbeat-interval", "50", "--election-timeout", "500"}

func startEtcd(t testing.TB) *servers {
	s := etcdtest.StartInstalled(t, etcdFlags...)
	return &servers{addrs: []string{s.Addr()}, hit: always(s)}
}

func startEtcdCluster(t testing.TB) *servers {
	c := etcdtest.ClusterInstalled(t, 3, etcdFlags...)
	return &servers{
		addrs:    c.Addrs(),
		hit:      func(*rand.Rand) pair.Server { return c.Leader() },
		failover: func(hold func(func())) { replaceLeader(hold, c.Leader()) },
		settle:   func() { c.Leader() },
	}
}

// replaceLeader kills a leader, and restarts it when it has been away for a while: the others
// elect another one.
func replaceLeader(hold func(func()), leader pair.Server) {
	hold(leader.Kill)
	leader.Restart()
}

// get returns what an HTTP server answers.
func get(addr, path string) (string, error) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + addr + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return string(text), err
}

func startZooKeeper(t testing.TB) *servers {
	t, shim := withShim(t)
	s := zktest.Single(t)
	return &servers{addrs: []string{s.Addr()}, hit: always(zooKeeper{s}), shim: shim}
}

// A zooKeeper is a server that is restarted as an operator does it: without the log that is empty
// because the disk was full: ZooKeeper does not start with it (ZOOKEEPER-2332).
type zooKeeper struct{ *zktest.Server }

// Restart implements [pair.Server].
func (s zooKeeper) Restart() {
	logs, _ := filepath.Glob(filepath.Join(s.Dir(), "version-2", "log.*")) // the pattern is right
	for _, file := range logs {
		if info, err := os.Stat(file); err == nil && info.Size() == 0 {
			_ = os.Remove(file) // or else the restart fails, and says so
		}
	}
	s.Server.Restart()
}

func startZooKeepers(t testing.TB) *servers {
	c := zktest.Ensemble(t)
	return &servers{
		addrs:    c.Addrs(),
		hit:      func(*rand.Rand) pair.Server { return c.Leader() },
		failover: func(hold func(func())) { replaceLeader(hold, c.Leader()) },
		settle:   func() { c.Leader() },
	}
}
