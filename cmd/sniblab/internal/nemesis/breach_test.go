//go:build linux

package nemesis

import (
	"errors"
	"io"
	"log"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/redlock"
)

// siteServers are the servers of a site's store.
type siteServers struct {
	clock      *livetest.Shim
	redis      []*redistest.Node
	loseMemory func(s *site)          // makes Redis lose its memory, by a restart or a failover
	link       *livetest.Proxy        // from a replica to its master
	server     storedServer           // of SQL or etcd
	exec       func(statement string) // of SQL
	etcd       *etcdtest.Server
	ensemble   *zktest.Cluster
	mesh       *mesh
}

// A storedServer is a server that keeps its data in a folder.
type storedServer interface {
	servers.Server
	Stop()
	Dir() string
	Addr() string
}

// sites are the stores on which assumptions are broken: all backends, in all configurations
// in which they state different assumptions.
var sites = []struct {
	name  string
	start func(*site)
	late  bool // the driver's statements depend on the server that it finds
}{
	{name: "memory", start: func(s *site) { s.Store = newStore("memory") }},
	{name: "sqlite", start: siteOfFile},
	{name: "redis", start: siteOfRedis(store.Store{})},
	{name: "redis-nograce", start: siteOfRedis(store.Store{NoGrace: true})},
	{name: "redis-evicts", late: true, start: siteOfRedis(store.Store{NoGrace: true}, "maxmemory 8mb", "maxmemory-policy volatile-ttl")},
	{name: "redis-replica", late: true, start: siteOfReplica(store.Store{NoGrace: true})},
	{name: "redis-secretive", late: true, start: siteOfReplica(store.Store{NoGrace: true, User: "app"}, "user app on >app ~* &* +@all -config")},
	{name: "sentinel", start: siteOfSentinel},
	{name: "cluster", start: siteOfCluster},
	{name: "redlock", start: siteOfRedlock},
	{name: "pg", start: siteOfPG},
	{name: "pgsession", start: siteOfPG},
	{name: "mysql", start: siteOfMySQL},
	{name: "zk", start: siteOfZK},
	{name: "etcd", start: siteOfEtcd},
}

// The consequences, in the words of the page.
const (
	twoHolders = "two processes hold the lock at once, and each is told that it is valid"
	disordered = "a token is not greater than one that was granted before"
	nobody     = "nobody gets the lock, although nobody has it"
	refusal    = "the driver refuses to lock"
)

// The sites of Redis.
const (
	oneRedis = "redis redis-nograce redis-evicts redis-replica redis-secretive"
	anyRedis = oneRedis + " sentinel cluster"
)

var assumptions = []assumption{
	{
		sites: "memory", says: "all contenders live in this process",
		done: "two processes have a store each", wrong: twoHolders,
		breach: func(s *site) { s.checkAllHold(s.acquire(s.Store, overlapTTL), s.acquire(s.Store, overlapTTL)) },
	},
	{
		sites: "memory", says: "tokens are ordered across restarts of the process if its wall clock did not go back meanwhile",
		done: "the process starts again in the year 2000", wrong: disordered,
		breach: func(s *site) { s.checkDisorderInPast(func() {}) },
	},
	{
		sites: "sqlite", says: "all processes run on one host, under one kernel, and use the same file",
		done: "two processes have a file each, as on two hosts", wrong: twoHolders,
		breach: func(s *site) {
			other := s.Store
			other.Addrs = []string{filepath.Join(s.t.TempDir(), "locks.db")}
			s.checkAllHold(s.acquire(s.Store, overlapTTL), s.acquire(other, overlapTTL))
		},
	},
	{
		sites: "sqlite", says: "the file and those beside it are not deleted, replaced or written to by other programs while in use",
		done: "the file and those beside it are deleted", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.moveFiles(s.t.TempDir()) }) },
	},
	{
		sites: "sqlite", says: "the disk keeps what it has acknowledged (fsync is honest), and the wall clock is right across a restart of the host: detached leases end by it",
		done: "after a power cut the file is as it was before the grant, and it is the year 2000", wrong: disordered,
		breach: breakPower,
	},
	{
		sites: anyRedis, says: "the server's wall clock does not jump forward: leases end by it",
		done: "the servers' clocks are set forward by 20 minutes", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.advance(clockStep) }) },
	},
	{
		sites: anyRedis, says: "tokens are ordered across a failover, or a restart that loses memory, if the servers' clocks are right to within half the outage",
		done: "the servers' clocks are set back by 20 minutes, and what they remember is lost in a restart or a failover", wrong: disordered,
		breach: func(s *site) {
			s.checkDisorder(func() {
				s.advance(-clockStep)
				s.loseMemory(s)
			})
		},
	},
	{
		sites: anyRedis + " redlock", says: "nobody else changes or deletes the keys of locks",
		done: "somebody deletes the key of a lock (DEL)", wrong: twoHolders,
		breach: func(s *site) {
			s.overlap(func() {
				for _, n := range s.redis {
					_, _ = n.Do("DEL", s.lock) // replicas, and nodes without the key, refuse
				}
			})
		},
	},
	{
		sites: "redis sentinel", says: "after a restart or a failover nothing is granted for …",
		done: "a lease is longer than the grace, and what the servers remember is lost in a restart or a failover", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.loseMemory(s) }) },
	},
	{
		sites: "redis-nograce redis-evicts redis-replica redis-secretive cluster",
		says:  "no server restarts or is promoted that does not know of all leases: failover-grace is off",
		done:  "what the servers remember is lost in a restart or a failover", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.loseMemory(s) }) },
	},
	{
		sites: "redis-evicts", says: "not met: maxmemory-policy is …",
		done: "other keys fill the memory until the lock's is evicted", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { evict(s) }) },
	},
	{
		sites: "redis-replica", says: "not met: min-replicas-to-write is 0 with replicas…",
		done: "a replica that has lost its master is promoted, and the master goes on", wrong: twoHolders,
		breach: splitBrain,
	},
	{
		sites: "redis-secretive", says: "not met: min-replicas-to-write can't be read…",
		done: "it is 0, and a replica that has lost its master is promoted, and the master goes on", wrong: twoHolders,
		breach: splitBrain,
	},
	{
		sites: "redlock", says: "fewer than 3 of the 5 servers fail at a time: each is a master of its own, on a machine of its own",
		done:   "one server stands in the list twice; three servers stop; three servers are put back to what they remembered before the grant",
		wrong:  refusal + "; " + nobody + "; " + twoHolders,
		breach: breakRedlock,
	},
	{
		sites: "redlock", says: "no wall clock of a server jumps forward, and clocks run at the same rate to within 1 %: leases end by them; tokens are in order nonetheless",
		done:  "the servers' clocks are set forward by 20 minutes; the holder's clock stands still",
		wrong: twoHolders + "; their tokens are in order",
		breach: func(s *site) {
			s.checkSlowClock()
			s.lock += " once more"
			first, second := s.overlap(func() { s.advance(clockStep) })
			if first.Token() >= second.Token() {
				s.t.Errorf("token %d after %d", second.Token(), first.Token())
			}
		},
	},
	{
		sites: "redlock", says: "an attempt to take a lock ends within MaxTTL by a clock that runs: …",
		done: "a process's clock stands still when two nodes have granted; these restart without their memory, and are admitted; another process takes " +
			"and frees the lock; the first one gets a third vote",
		wrong: disordered, breach: breakAttempt,
	},
	{
		sites: "redlock", says: "when a majority of the servers has lost its memory, tokens are in order if clocks are right to within half the outage, " +
			"or if the floor that the operator gives is right",
		done: "the servers' clocks are set back by 20 minutes, all restart without their memory, and the operator gives 1 as the floor", wrong: disordered,
		breach: func(s *site) {
			s.checkDisorder(func() {
				s.advance(-clockStep)
				for _, n := range s.redis {
					n.Kill()
					n.Restart()
				}
				if err := redlock.Admin(s.Store.Nodes(), s.RedlockOptions()...).Recover(s.t.Context(), 1); err != nil {
					s.t.Fatal(err)
				}
			})
		},
	},
	{
		sites: "pg mysql", says: "the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left",
		done: "the server's clock is set forward by 20 minutes; the holder's clock stands still", wrong: twoHolders,
		breach: func(s *site) {
			s.checkSlowClock()
			s.lock += " once more"
			s.overlap(func() { s.advance(clockStep) })
		},
	},
	{
		sites: "pg", says: pgKeeps, done: kept, wrong: twoHolders, breach: restoreHeld,
	},
	{
		sites: "mysql", says: mysqlKeeps, done: kept, wrong: twoHolders, breach: restoreHeld,
	},
	{
		sites: "pg mysql", says: foreignRows, done: "somebody deletes the row", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.exec("DELETE FROM snib_locks WHERE name = '" + s.lock + "'") }) },
	},
	{
		sites: "pgsession", says: "the connection leads to the server itself and not to a pooler in transaction mode",
		done: "a PgBouncer in transaction mode stands before the server", wrong: refusal,
		breach: func(s *site) {
			store := s.Store
			store.Addrs = []string{pgtest.Pool(s.t, s.server.(*pgtest.Server), "transaction").Addr()}
			s.checkRefused(store)
		},
	},
	{
		sites: "pgsession", says: "the server's clock is not set back: it is the token",
		done: "the server's clock is set back by 20 minutes", wrong: disordered,
		breach: func(s *site) { s.checkDisorder(func() { s.advance(-clockStep) }) },
	},
	{
		sites: "pgsession", says: "a primary that is replaced refuses writes, or its connections are cut, before another server takes its place",
		done: "two processes speak to a server each", wrong: twoHolders,
		breach: func(s *site) {
			other := s.Store
			other.Addrs = []string{pgtest.Start(s.t).Addr()}
			s.checkAllHold(s.acquire(s.Store, overlapTTL), s.acquire(other, overlapTTL))
		},
	},
	{
		sites: "zk", says: "nobody else deletes or makes nodes below the root other than locks",
		done: "somebody deletes the holder's node", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { deleteNodes(s) }) },
	},
	{
		sites: "zk", says: "the servers' clocks run at the rate of ours, and minSessionTimeout is two ticks at least",
		done:  "the holder's clock stands still, with KeepSuspended; minSessionTimeout is one tick",
		wrong: twoHolders + "; snib doctor says that it is not met", breach: breakTicks,
	},
	{
		sites: "zk", says: "a leader that is cut off from the majority steps down within 7/12 of a session's timeout: syncLimit ticks are no more than that",
		done: "syncLimit is a minute, the leader loses the others without a word, and the holder speaks to the leader", wrong: twoHolders,
		breach: breakLeader,
	},
	{
		sites: "zk", says: "a majority of the ensemble keeps what it acknowledged: its disks are not lost, and it is not set up anew under the same name",
		done: "two of three servers lose their disks, and start again", wrong: disordered,
		breach: func(s *site) { s.checkDisorder(func() { loseDisks(s) }) },
	},
	{
		sites: "etcd", says: "nobody else changes or deletes keys under the names of locks",
		done: "somebody deletes the holder's key", wrong: twoHolders,
		breach: func(s *site) { s.overlap(func() { s.etcd.Ctl("del", "--prefix", s.lock+"/") }) },
	},
	{
		sites: "etcd", says: "the members' clocks run at the rate of the clients'",
		done: "the holder's clock stands still", wrong: twoHolders, breach: (*site).checkSlowClock,
	},
	{
		sites: "etcd", says: "a majority of the members keeps what it has acknowledged; a cluster from a snapshot was restored with --bump-revision",
		done: "the only member is put back to a copy from before the grant; it loses its disk, and starts again", wrong: twoHolders + "; " + disordered,
		breach: loseDisk,
	},
}

// Assumptions that several drivers state, and ways to break them.
const (
	pgKeeps     = "the server keeps what it has acknowledged: fsync is on, and a standby is promoted only if it has all commits"
	mysqlKeeps  = "the server keeps what it has acknowledged: innodb_flush_log_at_trx_commit is 1, and a replica is promoted only if it has all commits"
	foreignRows = "nobody else changes or deletes rows of the table"

	kept = "the server is put back to a copy from before the grant"
)

// advance sets the servers' wall clock forward, or back, for the rest of the test.
func (s *site) advance(by time.Duration) {
	s.t.Helper()
	s.t.Cleanup(func() { s.clock.StepClock(-by) })
	s.clock.StepClock(by)
}

// siteOfFile sets up a site with a SQLite file.
func siteOfFile(s *site) {
	s.Store = newStore("sqlite", filepath.Join(s.t.TempDir(), "locks.db"))
}

// moveFiles moves the site's file, and those beside it, to a folder.
func (s *site) moveFiles(to string) {
	s.t.Helper()
	files, _ := filepath.Glob(s.Addrs[0] + "*") // the path contains no pattern
	s.run("mv", append(files, to)...)
}

// remove deletes a folder.
func (s *site) remove(dir string) {
	s.t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		s.t.Fatal(err)
	}
}

// checkDisorderInPast is checkDisorder for stores whose tokens follow the clock of
// their processes. After the breach it runs in a bubble of testing/synctest, whose
// clock starts in the year 2000.
func (s *site) checkDisorderInPast(breach func()) {
	s.t.Helper()
	first, second := s.useTokens(s.t), uint64(0)
	breach()
	synctest.Test(s.t, func(t *testing.T) { second = s.useTokens(t) })
	s.checkNotGreater(first, second)
}

// breakPower undoes the last grants, as a power cut may.
func breakPower(s *site) {
	s.useTokens(s.t)
	before := s.t.TempDir()
	s.run("cp", s.Addrs[0], before)
	s.checkDisorderInPast(func() {
		s.moveFiles(s.t.TempDir())
		s.run("cp", filepath.Join(before, filepath.Base(s.Addrs[0])), s.Addrs[0])
	})
}

// siteOfRedis returns a function that sets up a site with one server, which loses
// its memory when it restarts.
func siteOfRedis(like store.Store, conf ...string) func(*site) {
	return func(s *site) {
		t, clock := servers.WithShim(s.t)
		node := redistest.Single(t, conf...)
		s.Store, s.clock, s.redis = newStore("redis", node.Addr()), clock, []*redistest.Node{node}
		s.NoGrace, s.User = like.NoGrace, like.User
		s.loseMemory = func(*site) {
			node.Kill()
			node.Restart()
		}
		s.makeOld()
	}
}

// makeOld makes servers look old, so that they grant long leases: a young server
// may have lost leases in a restart.
func (s *site) makeOld() {
	s.advance(clockStep)
	s.lock = "begin"
	s.useTokens(s.t)
}

// siteOfReplica returns a function that sets up a site with a server and a replica.
func siteOfReplica(like store.Store, conf ...string) func(*site) {
	return func(s *site) {
		siteOfRedis(like, conf...)(s)
		replica := redistest.Single(s.t, conf...)
		s.link = livetest.NewProxy(s.t, s.Addrs[0])
		host, port, err := net.SplitHostPort(s.link.Addr())
		if err != nil {
			s.t.Fatal(err)
		}
		replica.Must("REPLICAOF", host, port)
		s.redis = append(s.redis, replica)
		livetest.Await(s.t, "replica", func() error { return checkReplication(s.redis[0], "connected_slaves:1") })
	}
}

// checkReplication returns an error unless INFO says want about replication.
func checkReplication(n *redistest.Node, want string) error {
	answer, err := n.Do("INFO", "replication")
	if text, _ := answer.(string); err == nil && !strings.Contains(text, want) {
		err = redistest.Error(text)
	}
	return err
}

// splitBrain has both a master and a promoted replica grant the lock.
func splitBrain(s *site) {
	defer s.link.Sever()()
	first := s.acquire(s.Store, overlapTTL)
	s.redis[1].Must("REPLICAOF", "NO", "ONE")
	other := s.Store
	other.Addrs = []string{s.redis[1].Addr()}
	s.checkAllHold(first, s.acquire(other, longTTL))
}

// evict fills a server until it has evicted the lock, and then empties it again.
func evict(s *site) {
	var fill []any
	for i := 0; s.redis[0].Must("EXISTS", s.lock) != int64(0); i++ {
		key := "fill" + string(rune('a'+i%26)) + string(rune('a'+i/26%26))
		fill = append(fill, key)
		if _, err := s.redis[0].Do("SET", key, strings.Repeat("x", 100_000)); err != nil && i > 500 {
			s.t.Fatalf("the server is full and has not evicted the lock: %v", err)
		}
	}
	s.redis[0].Must(append([]any{"DEL"}, fill...)...)
}

// forget deletes all data of the replicas, as if they had received nothing.
func forget(nodes []*redistest.Node) {
	for _, n := range nodes {
		if checkReplication(n, "role:slave") == nil {
			n.Must("CONFIG", "SET", "replica-read-only", "no")
			n.Must("FLUSHALL")
			n.Must("CONFIG", "SET", "replica-read-only", "yes")
		}
	}
}

func siteOfSentinel(s *site) {
	t, clock := servers.WithShim(s.t)
	r := redistest.Sentinel(t, minReplicas...)
	s.Store, s.clock = newStore("sentinel", r.Sentinels()...), clock
	s.redis = r.Nodes()
	s.loseMemory = func(*site) {
		forget(r.Nodes())
		r.KillMaster().Restart() // it or the empty replica becomes master
		r.WaitForReplicas()
	}
	s.makeOld()
}

func siteOfCluster(s *site) {
	t, clock := servers.WithShim(s.t)
	c := redistest.Cluster(t, minReplicas...)
	s.Store, s.clock = newStore("cluster", c.Addrs()...), clock
	s.NoGrace = true
	s.redis = c.Nodes()
	s.loseMemory = func(s *site) {
		forget(c.Nodes())
		c.KillMasterOf(c.SlotOf(s.lock)).Restart() // as with Sentinel
		c.WaitUntilWell()
	}
}

func siteOfRedlock(s *site) {
	t, clock := servers.WithShim(s.t)
	s.Store, s.clock = newStore("redlock"), clock
	for range 5 {
		n := redistest.Single(t)
		s.redis, s.Addrs = append(s.redis, n), append(s.Addrs, n.Addr())
	}
	if err := redlock.Admin(s.Store.Nodes(), s.RedlockOptions()...).Init(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func breakRedlock(s *site) {
	twice := s.Store
	twice.Addrs = slices.Concat(s.Addrs[:4], []string{livetest.NewProxy(s.t, s.Addrs[0]).Addr()})
	s.checkRefused(twice)

	other := s.locker(s.t, s.Store, longTTL)
	for _, n := range s.redis[:3] {
		n.Hang()
	}
	s.checkNotGranted(other, 2*time.Second)
	for _, n := range s.redis[:3] {
		n.Resume()
	}

	s.overlap(func() {
		for _, n := range s.redis[:3] {
			n.Must("DEL", s.lock)
		}
	})
}

// breakAttempt stops the clock of a process in the middle of an attempt.
func breakAttempt(s *site) {
	near := s.viaProxies(s.Store)
	var ways []*livetest.Proxy // of the first process
	for _, addr := range s.Addrs {
		s.proxyAddr(addr)
		ways = append(ways, s.proxies[addr])
	}
	opened, ready := make(chan struct{}), make(chan struct{})
	var late *snib.Lock
	s.runFrozen(func(t *testing.T) {
		locker := s.locker(t, near, longTTL)
		close(opened)
		<-ready
		var err error
		if late, err = locker.Acquire(t.Context(), s.lock); err != nil {
			t.Error(err)
		}
	}, func(done <-chan struct{}) {
		select {
		case <-opened:
		case <-done:
			return
		}
		ways[2].Sever()
		ways[3].Sever()
		ways[4].Stall()
		close(ready)
		for i, n := range s.redis[:2] {
			livetest.Await(s.t, "grant", func() error {
				if n.Must("EXISTS", s.lock) == int64(0) {
					return errors.New("the node has granted nothing")
				}
				return nil
			})
			// Nobody listens there: the grant is the last answer of this node.
			ways[i].Redirect("127.0.0.1:1")
			n.Kill()
			n.Restart()
		}
		if err := redlock.Admin(s.Store.Nodes(), s.RedlockOptions()...).Recover(s.t.Context(), 1); err != nil {
			s.t.Error(err)
			return
		}
		other := s.on(s.Store)
		locker := s.locker(s.t, other.viaProxies(s.Store), longTTL)
		other.proxies[s.Addrs[4]].Sever() // this node must not learn what follows
		lock, err := locker.Acquire(s.t.Context(), s.lock)
		if err != nil {
			s.t.Error(err)
			return
		}
		if err := lock.Release(); err != nil {
			s.t.Error(err)
		}
		ways[4].Heal() // the request to this node arrives
		<-done
		if late != nil {
			s.checkNotGreater(lock.Token(), late.Token())
		}
	})
}

func siteOfPG(s *site) {
	t, clock := servers.WithShim(s.t)
	server := pgtest.Start(t)
	s.Store, s.clock, s.server = newStore(path.Base(s.t.Name()), server.Addr()), clock, server
	s.exec = func(text string) { s.execIn(servers.ExecPostgres, server.URL(), text) }
}

func siteOfMySQL(s *site) {
	t, clock := servers.WithShim(s.t)
	server := mysqltest.Start(t)
	s.Store, s.clock, s.server = newStore(path.Base(s.t.Name()), server.Addr()), clock, server
	s.exec = func(text string) { s.execIn(servers.ExecMySQL, server.DSN(), text) }
}

// execIn executes a statement in a database.
func (s *site) execIn(exec func(string, ...string) error, url, text string) {
	s.t.Helper()
	if err := exec(url, text); err != nil {
		s.t.Fatal(err)
	}
}

func restoreHeld(s *site) { s.overlap(s.backUp(s.server)) }

// siteOfZK sets up a site with an ensemble whose leader tolerates the silence of
// the others for a minute.
func siteOfZK(s *site) {
	s.mesh = newMesh(s.t, 3, func(i int) int { return s.ensemble.Servers[i].PID() })
	s.ensemble = zktest.EnsembleThrough(s.t, s.mesh.proxyAddr, "syncLimit=600")
	s.Store = newStore("zk", s.ensemble.Addrs()...)
	s.Session = 36 * time.Second
}

// deleteNodes deletes the nodes of all holders and waiters of the lock.
func deleteNodes(s *site) {
	conn, _, err := zk.Connect(s.Addrs, 10*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	folder := "/snib/" + s.lock
	nodes, _, err := conn.Children(folder)
	if err != nil || len(nodes) == 0 {
		s.t.Fatalf("%s has %v, %v", folder, nodes, err)
	}
	for _, node := range nodes {
		if err := conn.Delete(folder+"/"+node, -1); err != nil {
			s.t.Fatal(err)
		}
	}
}

// breakTicks breaks both parts of the assumption: it stops the holder's clock, and checks that
// "snib doctor" reports a server whose minSessionTimeout is one tick.
func breakTicks(s *site) {
	s.Kind = "zkkeep" // otherwise the hold ends with the connection, whose clock is right
	s.checkSlowClock()
	hasty := zktest.Single(s.t, "4lw.commands.whitelist=srvr,conf", "minSessionTimeout=100")
	program := filepath.Join(s.t.TempDir(), "snib")
	s.run("go", "build", "-o", program, "../../../snib")
	s.run("sh", "-c", `"$0" doctor "$1" | grep "^unmet.*minSessionTimeout of"`, program, "zk://"+hasty.Addr())
}

// breakLeader isolates the leader, which goes on serving the holder while the
// others elect a new leader.
func breakLeader(s *site) {
	i := slices.Index(s.ensemble.Servers, s.ensemble.Leader())
	leads := newStore("zk", s.Addrs[i])
	leads.Session = 10 * time.Second
	follows := leads
	follows.Addrs = slices.Delete(slices.Clone(s.Addrs), i, i+1)
	first := s.acquire(leads, overlapTTL)
	s.checkNotGranted(s.locker(s.t, follows, longTTL), 200*time.Millisecond)
	defer s.mesh.cutHalfOpen(i)()
	s.checkAllHold(first, s.acquire(follows, overlapTTL))
}

// loseDisks kills the ensemble and restarts a majority of it without its data.
func loseDisks(s *site) {
	for _, server := range s.ensemble.Servers {
		server.Kill()
	}
	s.Addrs = s.Addrs[:2]
	for _, server := range s.ensemble.Servers[:2] {
		s.remove(filepath.Join(server.Dir(), "version-2"))
	}
	var starting sync.WaitGroup
	for _, server := range s.ensemble.Servers[:2] {
		starting.Go(server.Restart) // none of them would be ready alone
	}
	starting.Wait()
}

func siteOfEtcd(s *site) {
	s.etcd = etcdtest.Start(s.t)
	s.server = s.etcd
	s.Store = newStore("etcd", s.etcd.Addr())
	s.Session = 30 * time.Second
}

// loseDisk restores a server from an old copy, and later restarts it without data.
func loseDisk(s *site) {
	s.overlap(s.backUp(s.server))
	s.lock += " once more"
	s.checkDisorder(func() {
		s.etcd.Kill()
		s.remove(filepath.Join(s.etcd.Dir(), "data"))
		s.etcd.Restart()
	})
}
