package trial

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// A server is one of the servers of a store.
type server interface {
	Hang()
	Resume()
	Kill()
	Restart()
}

// servers are the servers of a store.
type servers struct {
	addrs  []string // that clients are given
	direct bool     // clients learn addresses from the servers, so the lab is not on their way

	// hit returns the server that the next fault hits: the one that leads, or any of equal ones.
	hit func(*rand.Rand) server

	// settle waits until the servers are well after a fault. It may be nil.
	settle func()

	// failover has another server replace the one that leads. It calls hold with what makes the
	// leader fail; hold may first have a client acquire the lock.
	failover func(hold func(fail func()))

	// moved is called when addrs have changed. The store sets it.
	moved func()

	shim *livetest.Shim // of the servers, or of one of several; nil if there is no compiler

	// count returns how many commands of clients the servers have executed. Only the difference of
	// two numbers says something. It is nil if that is not known.
	count func() (int64, error)

	// clients returns how many connections clients have to the servers. It is nil if they go
	// through the lab, which counts them itself.
	clients func() (int, error)

	clear func(Target)      // removes all data; nil if that can't be done
	nodes []*redistest.Node // of which one can forget what it has
	leaky []*redistest.Node // whose keys are to end
}

func always(s server) func(*rand.Rand) server { return func(*rand.Rand) server { return s } }

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
	return &servers{addrs: []string{node.Addr()}, hit: always(node), count: countRedis(all), clear: flush(all), nodes: all,
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
	s.clear, s.count = flush(s.nodes), countRedis(s.nodes)
	s.hit = func(rng *rand.Rand) server { return s.nodes[rng.IntN(len(s.nodes))] }
	return s
}

// startSentinel starts a master and a replica. When a master fails, its replica has not yet heard
// of the latest changes.
func startSentinel(t testing.TB) *servers {
	s := redistest.Sentinel(t, "appendonly yes")
	return &servers{
		addrs: s.Sentinels(), direct: true,
		hit:    func(*rand.Rand) server { return s.Master() },
		settle: s.WaitForReplicas,
		count:  countRedis(s.Nodes()), clients: redisClients(s.Nodes()),
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
		hit:    func(*rand.Rand) server { return c.MasterOf(slot) },
		settle: c.WaitUntilWell,
		count:  countRedis(c.Nodes()), clients: redisClients(c.Nodes()),
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
	s := pgtest.Start(t, statementStats(t)...)
	return &servers{
		addrs: []string{s.Addr()}, hit: always(s), shim: shim, count: countPostgres(t, s.Addr),
		clear: func(c Target) { emptyPostgres(t, s.Addr(), c) },
	}
}

func startPgBouncer(t testing.TB) *servers {
	s := pgtest.Start(t, statementStats(t)...)
	pool := pgtest.Pool(t, s, "transaction")
	return &servers{
		addrs: []string{pool.Addr()}, hit: always(s), count: countPostgres(t, s.Addr),
		clear: func(c Target) { emptyPostgres(t, s.Addr(), c) },
	}
}

// postgresDatabase is the database of a trial.
const postgresDatabase = "lab"

// forgetStatements makes room for the statements of the next trial, if the server counts them.
const forgetStatements = `DO $$ BEGIN
	IF EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements') THEN
		PERFORM pg_stat_statements_reset();
	END IF;
END $$`

// emptyPostgres replaces the database, whoever still uses it.
func emptyPostgres(t testing.TB, addr string, c Target) {
	err := execPostgres(addr, "postgres", "DROP DATABASE IF EXISTS "+postgresDatabase+" WITH (FORCE)", "CREATE DATABASE "+postgresDatabase, forgetStatements)
	if err == nil && c.IsControl() {
		err = execPostgres(addr, postgresDatabase, pattern.PostgresSchema, "INSERT INTO articles VALUES (1, 100)")
	}
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
}

func execPostgres(addr, database string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, "postgres://"+pgtest.User+":"+pgtest.Password()+"@"+addr+"/"+database+"?sslmode=disable")
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // all statements are done
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func startMySQL(t testing.TB) *servers {
	t, shim := withShim(t)
	s := mysqltest.Start(t)
	return &servers{addrs: []string{s.Addr()}, hit: always(s), shim: shim, count: countMySQL(t, s.DSN)}
}

// etcdFlags make leases of a second possible: the shortest is three halves of the election
// timeout, in whole seconds.
var etcdFlags = []string{"--heartbeat-interval", "50", "--election-timeout", "500"}

func startEtcd(t testing.TB) *servers {
	s := etcdtest.StartInstalled(t, etcdFlags...)
	return &servers{addrs: []string{s.Addr()}, hit: always(s), count: countEtcd(s.Addr())}
}

func startEtcdCluster(t testing.TB) *servers {
	c := etcdtest.ClusterInstalled(t, 3, etcdFlags...)
	leader := func() *etcdtest.Server {
		var found *etcdtest.Server
		livetest.Await(t, "leader of etcd", func() (err error) {
			found, err = etcdLeader(c)
			return err
		})
		return found
	}
	return &servers{
		addrs:    c.Addrs(),
		hit:      func(*rand.Rand) server { return leader() },
		failover: func(hold func(func())) { replaceLeader(hold, leader()) },
		settle:   func() { leader() },
		count:    countEtcd(c.Addrs()...),
	}
}

// replaceLeader kills a leader, and restarts it when it has been away for a while: the others
// elect another one.
func replaceLeader(hold func(func()), leader server) {
	hold(leader.Kill)
	leader.Restart()
}

// etcdLeader asks the members which of them leads.
func etcdLeader(c *etcdtest.ClusterSetup) (*etcdtest.Server, error) {
	err := io.EOF
	for _, m := range c.Members {
		if !m.Up() {
			continue
		}
		text, failed := get(m.Addr(), "/metrics")
		if strings.Contains(text, "\netcd_server_is_leader 1\n") {
			return m, nil
		}
		if failed != nil {
			err = failed
		}
	}
	return nil, err
}

// get speaks HTTP by hand, because the lab has no other use for the client of net/http, which
// would make the command larger by 0.4 MB.
func get(addr, path string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }() // it has answered
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

func startZooKeeper(t testing.TB) *servers {
	t, shim := withShim(t)
	s := zktest.Single(t)
	return &servers{addrs: []string{s.Addr()}, hit: always(zooKeeper{s}), shim: shim, count: countZooKeeper(s)}
}

// A zooKeeper is a server that is restarted as an operator does it: without the log that is empty
// because the disk was full: ZooKeeper does not start with it (ZOOKEEPER-2332).
type zooKeeper struct{ *zktest.Server }

// Restart implements [server].
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
		hit:      func(*rand.Rand) server { return c.Leader() },
		failover: func(hold func(func())) { replaceLeader(hold, c.Leader()) },
		settle:   func() { c.Leader() },
		count:    countZooKeeper(c.Servers...),
	}
}
