package servers

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// Redis starts a server.
func Redis(t testing.TB, conf ...string) *Set {
	t, shim := WithShim(t)
	node := redistest.Single(t, conf...)
	s := single(t, shim, node)
	s.Nodes = []*redistest.Node{node}
	s.Own = map[string]func(Strike){"kill-session": func(k Strike) {
		k.Hold(func() { node.Must("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") })
	}}
	return s
}

// Redlock starts independent servers, the first of them with a shim.
func Redlock(t testing.TB, n int, conf ...string) *Set {
	first, shim := WithShim(t)
	s := &Set{T: t, Shim: shim}
	for i := range n {
		on := t
		if i == 0 {
			on = first
		}
		node := redistest.Single(on, conf...)
		s.Nodes, s.Addrs, s.All = append(s.Nodes, node), append(s.Addrs, node.Addr()), append(s.All, node)
	}
	s.Hit = func(rng *rand.Rand) Server { return s.All[rng.IntN(n)] }
	return s
}

// Sentinel starts a master and a replica, and three Sentinels.
func Sentinel(t testing.TB, conf ...string) (*Set, *redistest.SentinelSetup) {
	r := redistest.Sentinel(t, conf...)
	s := &Set{
		T: t, Addrs: r.Sentinels(), Direct: true, Nodes: r.Nodes(), Settle: r.WaitForReplicas,
		Hit: func(*rand.Rand) Server { return r.Master() },
	}
	s.Own = map[string]func(Strike){
		"switch-over": func(k Strike) { k.Hold(func() { r.Failover() }) },
		// When the master fails, its replica has not yet heard of the latest changes.
		"failover": func(k Strike) {
			master := r.Master()
			var replica *redistest.Node
			for _, n := range r.Nodes() {
				if n != master {
					replica = n
				}
			}
			replica.Hang()
			master.Must("CLIENT", "KILL", "TYPE", "slave")
			k.Hold(func() {
				master.Kill()
				replica.Resume()
				livetest.Await(t, "failover", func() error {
					_, err := r.SentinelNodes()[0].Do("SENTINEL", "FAILOVER", r.MasterName())
					return err
				})
				r.WaitForFailover(master)
			})
			master.Restart()
			r.WaitForReplicas()
		},
	}
	return s, r
}

// Cluster starts three masters with a replica each. Faults hit the masters of these locks.
func Cluster(t testing.TB, locks []string, conf ...string) *Set {
	c := redistest.Cluster(t, conf...)
	slot := func(rng *rand.Rand) int {
		if len(locks) == 1 {
			return c.SlotOf(locks[0])
		}
		return c.SlotOf(locks[rng.IntN(len(locks))])
	}
	s := &Set{
		T: t, Addrs: c.Addrs(), Direct: true, Nodes: c.Nodes(), Settle: c.WaitUntilWell,
		Hit: func(rng *rand.Rand) Server { return c.MasterOf(slot(rng)) },
	}
	s.Own = map[string]func(Strike){
		"failover": func(k Strike) {
			at := slot(k.Rand)
			var old *redistest.Node
			k.Hold(func() {
				old = c.KillMasterOf(at)
				c.WaitForFailover(at, old)
				k.Wait()
			})
			old.Restart()
			c.WaitUntilWell()
		},
		"switch-over": func(k Strike) {
			k.Hold(func() { c.Failover(slot(k.Rand)) })
			c.WaitUntilWell()
		},
		"move-slot": func(k Strike) {
			at := slot(k.Rand)
			k.Hold(func() {
				move := c.BeginMove(at, c.MasterOtherThan(at))
				k.Wait()
				move.Keys()
				k.Wait()
				move.Finish()
			})
			c.WaitUntilWell()
		},
	}
	return s
}

// Postgres starts a server.
func Postgres(t testing.TB) *Set {
	t, shim := WithShim(t)
	server := pgtest.Start(t)
	s := single(t, shim, server)
	s.endSessions(func() error {
		return ExecPostgres(server.URL(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < 0.5`)
	})
	return s
}

// PgBouncer starts a server behind PgBouncer in transaction mode.
func PgBouncer(t testing.TB) *Set {
	server := pgtest.Start(t)
	s := single(t, nil, server)
	s.Addrs = []string{pgtest.Pool(t, server, "transaction").Addr()}
	return s
}

// MySQL starts a MariaDB server.
func MySQL(t testing.TB) *Set {
	t, shim := WithShim(t)
	server := mysqltest.Start(t)
	s := single(t, shim, server)
	s.endSessions(func() error { return killMySQL(server.DSN()) })
	return s
}

// endSessions adds the fault that about half of the sessions end.
func (s *Set) endSessions(end func() error) {
	s.Own = map[string]func(Strike){"kill-session": func(k Strike) {
		k.Hold(func() {
			livetest.Want(s.T, end(), nil, "end sessions")
		})
	}}
}

func killMySQL(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // it has answered
	db.SetMaxOpenConns(1)
	var ids string
	const others = "SELECT coalesce(group_concat(id), '') FROM information_schema.processlist WHERE user = ? AND id <> CONNECTION_ID() AND rand() < 0.5"
	if err := db.QueryRowContext(ctx, others, mysqltest.User).Scan(&ids); err != nil {
		return err
	}
	for _, id := range strings.FieldsFunc(ids, func(c rune) bool { return c == ',' }) {
		_, _ = db.ExecContext(ctx, "KILL "+id) // it may have ended
	}
	return nil
}

// Replicated returns the set of a primary and its replica.
func Replicated(t testing.TB, p *Pair) *Set {
	s := &Set{T: t, Addrs: []string{p.Primary.Addr()}, Hit: func(*rand.Rand) Server { return p.Primary }}
	s.Own = map[string]func(Strike){"failover": func(k Strike) {
		p.Failover(func() {
			s.Addrs[0] = p.Primary.Addr()
			s.move()
		}, func(fail func()) {
			k.Hold(func() {
				if !p.synchronous { // the replica lags
					k.Wait()
				}
				fail()
			})
		})
	}}
	return s
}

// etcdFlags make leases of a second possible: the shortest is three halves of the election
// timeout, in whole seconds.
var etcdFlags = []string{etcdtest.Installed, "--heartbeat-interval", "50", "--election-timeout", "500"}

// Etcd starts a server that is installed.
func Etcd(t testing.TB) *Set { return single(t, nil, etcdtest.Start(t, etcdFlags...)) }

// EtcdCluster starts three servers that are installed.
func EtcdCluster(t testing.TB) *Set {
	return OfEtcd(t, etcdtest.Cluster(t, 3, etcdFlags...))
}

// OfEtcd returns the set of a cluster.
func OfEtcd(t testing.TB, c *etcdtest.ClusterSetup) *Set {
	s := replicas(t, c.Addrs(), List(c.Members), func() Server { return c.Leader() })
	s.Own["kill-session"] = func(k Strike) {
		k.Hold(func() {
			out, err := c.Members[0].TryCtl("lease", "list")
			livetest.Want(t, err, nil, "list leases")
			ids := strings.Fields(out)
			for _, id := range ids[min(len(ids), 3):] { // "found 3 leases", and then the ids
				_, _ = c.Members[0].TryCtl("lease", "revoke", id) // it may have ended
			}
		})
	}
	return s
}

// ZooKeeper starts a server.
func ZooKeeper(t testing.TB) *Set {
	t, shim := WithShim(t)
	return single(t, shim, zooKeeper{zktest.Single(t)})
}

// A zooKeeper is a server that is restarted as an operator does it: without the log that is empty
// because the disk was full: ZooKeeper does not start with it (ZOOKEEPER-2332).
type zooKeeper struct{ *zktest.Server }

// Restart implements [Server].
func (s zooKeeper) Restart() {
	logs, _ := filepath.Glob(filepath.Join(s.Dir(), "version-2", "log.*")) // the pattern is right
	for _, file := range logs {
		if info, err := os.Stat(file); err == nil && info.Size() == 0 {
			_ = os.Remove(file) // or else the restart fails, and says so
		}
	}
	s.Server.Restart()
}

// ZooKeepers starts three servers.
func ZooKeepers(t testing.TB) *Set { return OfZooKeeper(t, zktest.Ensemble(t)) }

// OfZooKeeper returns the set of an ensemble.
func OfZooKeeper(t testing.TB, c *zktest.Cluster) *Set {
	return replicas(t, c.Addrs(), List(c.Servers), func() Server { return c.Leader() })
}

// replicas returns the set of members that elect a leader. When it fails, it is restarted when it
// has been away for a while: the others elect another one.
func replicas(t testing.TB, addrs []string, all []Server, leader func() Server) *Set {
	return &Set{
		T: t, Addrs: addrs, All: all, Hit: func(*rand.Rand) Server { return leader() }, Settle: func() { leader() },
		Own: map[string]func(Strike){"failover": func(k Strike) {
			old := leader()
			k.Hold(old.Kill)
			old.Restart()
		}},
	}
}
