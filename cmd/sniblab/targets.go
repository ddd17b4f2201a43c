package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/peers/golang"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

// ownGroup is the name of snib on all stores that are installed.
const ownGroup = "snib"

// An ownTarget is snib on one kind of store.
type ownTarget struct {
	trial.Target

	// open opens a driver for the URL of the store.
	open func(ctx context.Context, url string) (snib.Driver, error)
}

const (
	// ownTTL is the session timeout of stores with sessions. The lab asks for leases as long.
	ownTTL = trial.TTL

	// redlockTTL is how long a node of Redlock stays away after a restart.
	redlockTTL = 2 * time.Second

	// dialTimeout bounds a connection to a server that does not answer.
	dialTimeout = 5 * time.Second

	// sentinelGrace is how long snib's locks on a new or restarted master behind Sentinels wait:
	// 20 s, with a reserve for the failover.
	sentinelGrace = 25 * time.Second

	// failoverTime is how long a failover of a Cluster takes, with the grace after it, and how
	// long a node of Redlock takes no part after a restart.
	failoverTime = 5 * time.Second
)

// Assumptions that snib states in its Info, and that a fault of the lab breaks.
const (
	clockAssumed   = "the server's clock runs at the rate of the clients' and is not set forward by more than a lease's TTL has left"
	standbyAssumed = "a standby is promoted only if it has all commits"
	replicaAssumed = "a replica is promoted only if it has all commits"
)

// ownTargets returns snib on those of its stores that the lab can start.
func ownTargets() []ownTarget {
	on := func(store trial.StoreKind, name, title string,
		open func(context.Context, string) (snib.Driver, error)) ownTarget {
		return ownTarget{trial.Target{Name: name, Title: title, Store: store, Tokens: true, Command: ownCommand(name)}, open}
	}
	assuming := func(o ownTarget, fault, text string) ownTarget {
		o.Assumes = map[string]string{fault: text}
		return o
	}
	memory := on(trial.None, "snib-memory", "snib in the memory of one process, whose goroutines compete", openMemory)
	memory.Together = true
	redis := assuming(on(trial.Redis, "snib-redis", "snib on one Redis server, with a grace period of 1 s", openRedis(redislock.GraceFloor(ownTTL))),
		"store-forward", "the server's wall clock does not jump forward: leases end by it")
	redis.Restart = redisTokens
	sentinel := on(trial.Sentinel, "snib-sentinel", "snib on Redis behind Sentinels, with AllowSplitBrain", openRedis(redislock.AllowSplitBrain()))
	sentinel.Settle = sentinelGrace
	cluster := on(trial.Cluster, "snib-cluster", "snib on a Redis Cluster, with a grace period of 1 s", openRedis(redislock.GraceFloor(ownTTL)))
	cluster.Settle = failoverTime
	quorum := assuming(on(trial.Redlock, "snib-redlock", "snib with Redlock on three Redis servers, with a longest TTL of 2 s", openRedlock),
		"store-forward", "no wall clock of a server jumps forward")
	quorum.OneWay, quorum.Prepare, quorum.Settle = true, prepareRedlock, failoverTime
	return []ownTarget{
		memory,
		on(trial.File, "snib-sqlite", "snib on a SQLite file", openSQLite),
		redis, sentinel, cluster, quorum,
		assuming(on(trial.Postgres, "snib-postgres", "snib in a table of a PostgreSQL server", openPostgres), "store-forward", clockAssumed),
		on(trial.Postgres, "snib-postgres-sessions", "snib with PostgreSQL's advisory locks, and a session timeout of a TTL", openPostgresSessions),
		on(trial.PgBouncer, "snib-pgbouncer", "snib in a table of a PostgreSQL server behind PgBouncer in transaction mode", openPostgres),
		on(trial.PostgresSync, "snib-postgres-sync", "snib in a table of a PostgreSQL server with a synchronous standby", openPostgres),
		assuming(on(trial.PostgresAsync, "snib-postgres-async", "snib in a table of a PostgreSQL server with an asynchronous standby", openPostgres),
			"failover", standbyAssumed),
		assuming(on(trial.MySQL, "snib-mysql", "snib in a table of a MariaDB server", openMySQL), "store-forward", clockAssumed),
		on(trial.MySQLSync, "snib-mysql-semisync", "snib in a table of a MariaDB server with a semi-synchronous replica", openMySQL),
		assuming(on(trial.MySQLAsync, "snib-mysql-async", "snib in a table of a MariaDB server with an asynchronous replica", openMySQL),
			"failover", replicaAssumed),
		on(trial.Etcd, "snib-etcd", "snib on one etcd server, with a session timeout of 1 s", openEtcd),
		on(trial.EtcdCluster, "snib-etcd-cluster", "snib on three etcd servers, with a session timeout of 1 s", openEtcd),
		on(trial.ZooKeeper, "snib-zookeeper", "snib on one ZooKeeper server, with a session timeout of 1 s", openZooKeeper),
		on(trial.ZooKeepers, "snib-zookeeper-ensemble", "snib on three ZooKeeper servers, with a session timeout of 1 s", openZooKeeper),
	}
}

// redisTokens is when tokens of snib-redis go back (docs/backends/redislock.md, Fencing).
var redisTokens = judge.Restart{
	Fault: "store-forget", After: "store-back",
	Assumption: "the clock of a server that has lost its memory is not behind: tokens go on from it",
}

// own returns the targets of [ownTargets] as the lab runs them.
func own() []trial.Target {
	var all []trial.Target
	for _, o := range ownTargets() {
		all = append(all, o.Target)
	}
	return all
}

// ownInstalled returns those whose servers are installed.
func ownInstalled() []trial.Target {
	return slices.DeleteFunc(own(), func(t trial.Target) bool { return t.Store.Missing() != nil })
}

// controls returns the broken patterns.
func controls() []trial.Target { return trial.Controls(ownCommand) }

// addresses returns the addresses in the URL of a store.
func addresses(url string) []string {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	return strings.Split(rest, ",")
}

func openMemory(context.Context, string) (snib.Driver, error) { return memlock.New(), nil }

func openSQLite(ctx context.Context, file string) (snib.Driver, error) {
	return sqlitelock.Open(ctx, file)
}

func openRedis(opts ...redislock.Option) func(context.Context, string) (snib.Driver, error) {
	return func(ctx context.Context, text string) (snib.Driver, error) {
		o := rueidis.ClientOption{InitAddress: addresses(text)}
		if rest, ok := strings.CutPrefix(text, "redis+sentinel://"); ok {
			_, master, _ := strings.Cut(rest, "/")
			o.Sentinel = rueidis.SentinelOption{MasterSet: master}
		}
		return redislock.Open(ctx, o, opts...)
	}
}

// redlockNodes returns how to connect to each node.
func redlockNodes(url string) []rueidis.ClientOption {
	var nodes []rueidis.ClientOption
	for _, addr := range addresses(url) {
		nodes = append(nodes, rueidis.ClientOption{InitAddress: []string{addr}})
	}
	return nodes
}

func openRedlock(ctx context.Context, url string) (snib.Driver, error) {
	return redlock.Open(ctx, redlockNodes(url), redlock.MaxTTL(redlockTTL))
}

// prepareRedlock makes empty servers the nodes of a Redlock.
func prepareRedlock(ctx context.Context, url string) error {
	return redlock.Admin(redlockNodes(url), redlock.MaxTTL(redlockTTL)).Init(ctx)
}

// newPostgresPool returns a pool that connects when it is used.
func newPostgresPool(url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.ConnConfig.ConnectTimeout = dialTimeout
	return pgxpool.NewWithConfig(context.Background(), c)
}

func openPostgres(_ context.Context, url string) (snib.Driver, error) {
	pool, err := newPostgresPool(url)
	if err != nil {
		return nil, err
	}
	return pglock.New(pool)
}

func openPostgresSessions(_ context.Context, url string) (snib.Driver, error) {
	pool, err := newPostgresPool(url)
	if err != nil {
		return nil, err
	}
	return pglock.NewSession(pool, pglock.Timeout(ownTTL))
}

func openMySQL(_ context.Context, text string) (snib.Driver, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User, c.Timeout = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username(), dialTimeout
	c.Passwd, _ = u.User.Password()
	c.Logger = &mysql.NopLogger{} // it would log each broken connection
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return mysqllock.New(sql.OpenDB(connector))
}

func openEtcd(ctx context.Context, url string) (snib.Driver, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: addresses(url), DialTimeout: dialTimeout, DialKeepAliveTime: 5 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
	})
	if err != nil {
		return nil, err
	}
	return etcdlock.New(client, etcdlock.Timeout(ownTTL))
}

func openZooKeeper(_ context.Context, url string) (snib.Driver, error) {
	return zklock.New(addresses(url), zklock.DialTimeout(dialTimeout), zklock.Timeout(ownTTL))
}

// serveTarget is the process of a target that comes with the lab.
func serveTarget(name string) error {
	all := ownTargets()
	i := slices.IndexFunc(all, func(o ownTarget) bool { return o.Name == name })
	switch {
	case i >= 0:
	case golang.Has(name):
		return golang.Serve(name, os.Stdin, os.Stdout)
	default:
		if err := trial.ServePattern(name, os.Stdin, os.Stdout); err != nil {
			return usagef("%w; see sniblab list", err)
		}
		return nil
	}
	return target.Serve(os.Stdin, os.Stdout, func(ctx context.Context, m target.Message) (target.Locker, error) {
		d, err := openPatiently(ctx, m.URL, all[i].open)
		if err != nil {
			return nil, err
		}
		locker, err := snib.New(d, snib.TTL(time.Duration(m.TTL)*time.Millisecond))
		if err != nil {
			return nil, err
		}
		return ownLocker{locker, m.Name}, nil
	})
}

// openTimeout is for how long a target tries to open a store that does not answer: it may be
// started while the servers still recover from a fault.
const openTimeout = 20 * time.Second

// openPause is between two tries.
const openPause = 100 * time.Millisecond

// openPatiently opens a store with open, again and again while the store does not answer.
func openPatiently(ctx context.Context, url string,
	open func(context.Context, string) (snib.Driver, error)) (snib.Driver, error) {
	for began := time.Now(); ; {
		d, err := open(ctx, url)
		if !errors.Is(err, snib.ErrUnavailable) || time.Since(began) > openTimeout {
			return d, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(openPause):
		}
	}
}

// An ownLocker is snib as a target.
type ownLocker struct {
	locker *snib.Locker
	name   string
}

// Acquire implements [target.Locker].
func (l ownLocker) Acquire(ctx context.Context, wait time.Duration) (target.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lock, err := l.locker.Acquire(ctx, l.name)
	switch {
	case err == nil:
		return ownHold{lock}, nil
	case errors.Is(err, snib.ErrHeld) || errors.Is(err, context.DeadlineExceeded):
		return nil, target.ErrDenied
	}
	return nil, err
}

// An ownHold is a hold of snib.
type ownHold struct{ *snib.Lock }

// Held implements [target.Hold].
func (h ownHold) Held() bool { return h.Validity() > 0 }

// Release implements [target.Hold].
func (h ownHold) Release(context.Context) error { return h.Lock.Release() }
