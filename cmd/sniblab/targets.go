package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/peers/golang"
	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/cmd/sniblab/internal/trial"
	"github.com/sniblock/snib/redlock"
)

// ownGroup is the name of snib on all stores that are installed.
const ownGroup = "snib"

// An ownTarget is snib on one kind of store, whose addresses are missing.
type ownTarget struct {
	trial.Target
	store store.Store
}

const (
	// ownTTL is the session timeout of stores with sessions. The lab asks for leases as long.
	ownTTL = trial.TTL

	// redlockTTL is how long a node of Redlock stays away after a restart.
	redlockTTL = 2 * time.Second

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
	on := func(kind trial.StoreKind, name, title string, s store.Store) ownTarget {
		return ownTarget{trial.Target{
			Name: name, Title: title, Store: kind, Tokens: true, Command: trial.OwnCommand(name),
		}, s}
	}
	assuming := func(o ownTarget, fault, text string) ownTarget {
		o.Assumes = map[string]string{fault: text}
		return o
	}
	graceful := func(kind string) store.Store { return store.Store{Kind: kind, GraceFloor: ownTTL} }
	pg, mysql := store.Store{Kind: "pg"}, store.Store{Kind: "mysql"}
	etcd, zk := store.Store{Kind: "etcd", Session: ownTTL}, store.Store{Kind: "zk", Session: ownTTL}
	nodes := store.Store{Kind: "redlock", MaxTTL: redlockTTL}
	memory := on(trial.None, "snib-memory", "snib in the memory of one process, whose goroutines compete", store.Store{Kind: "memory"})
	memory.Together = true
	redis := assuming(on(trial.Redis, "snib-redis", "snib on one Redis server, with a grace period of 1 s", graceful("redis")),
		"store-forward", "the server's wall clock does not jump forward: leases end by it")
	redis.Restart = redisTokens
	sentinel := on(trial.Sentinel, "snib-sentinel", "snib on Redis behind Sentinels, with AllowSplitBrain", store.Store{Kind: "sentinel", SplitBrain: true})
	sentinel.Settle = sentinelGrace
	cluster := on(trial.Cluster, "snib-cluster", "snib on a Redis Cluster, with a grace period of 1 s", graceful("cluster"))
	cluster.Settle = failoverTime
	quorum := assuming(on(trial.Redlock, "snib-redlock", "snib with Redlock on three Redis servers, with a longest TTL of 2 s", nodes),
		"store-forward", "no wall clock of a server jumps forward")
	quorum.OneWay, quorum.Settle = true, failoverTime
	quorum.Prepare = func(ctx context.Context, url string) error { // makes empty servers the nodes of a Redlock
		at := nodes
		at.Addrs = addresses(url)
		return redlock.Admin(at.Nodes(), at.RedlockOptions()...).Init(ctx)
	}
	return []ownTarget{
		memory,
		on(trial.File, "snib-sqlite", "snib on a SQLite file", store.Store{Kind: "sqlite"}),
		redis, sentinel, cluster, quorum,
		assuming(on(trial.Postgres, "snib-postgres", "snib in a table of a PostgreSQL server", pg), "store-forward", clockAssumed),
		on(trial.Postgres, "snib-postgres-sessions", "snib with PostgreSQL's advisory locks, and a session timeout of a TTL",
			store.Store{Kind: "pgsession", Session: ownTTL}),
		on(trial.PgBouncer, "snib-pgbouncer", "snib in a table of a PostgreSQL server behind PgBouncer in transaction mode", pg),
		on(trial.PostgresSync, "snib-postgres-sync", "snib in a table of a PostgreSQL server with a synchronous standby", pg),
		assuming(on(trial.PostgresAsync, "snib-postgres-async", "snib in a table of a PostgreSQL server with an asynchronous standby", pg),
			"failover", standbyAssumed),
		assuming(on(trial.MySQL, "snib-mysql", "snib in a table of a MariaDB server", mysql), "store-forward", clockAssumed),
		on(trial.MySQLSync, "snib-mysql-semisync", "snib in a table of a MariaDB server with a semi-synchronous replica", mysql),
		assuming(on(trial.MySQLAsync, "snib-mysql-async", "snib in a table of a MariaDB server with an asynchronous replica", mysql),
			"failover", replicaAssumed),
		on(trial.Etcd, "snib-etcd", "snib on one etcd server, with a session timeout of 1 s", etcd),
		on(trial.EtcdCluster, "snib-etcd-cluster", "snib on three etcd servers, with a session timeout of 1 s", etcd),
		on(trial.ZooKeeper, "snib-zookeeper", "snib on one ZooKeeper server, with a session timeout of 1 s", zk),
		on(trial.ZooKeepers, "snib-zookeeper-ensemble", "snib on three ZooKeeper servers, with a session timeout of 1 s", zk),
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
func controls() []trial.Target { return trial.Controls(trial.OwnCommand) }

// addresses returns the addresses in the URL of a store.
func addresses(url string) []string {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	_, hosts, hasUser := strings.Cut(rest, "@")
	if hasUser {
		rest = hosts
	}
	return strings.Split(rest, ",")
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
		at := all[i].store
		switch at.Kind {
		case "pg", "pgsession", "sqlite":
			at.Addrs = []string{m.URL}
		default:
			at.Addrs = addresses(m.URL)
		}
		d, err := openPatiently(ctx, at)
		if err != nil {
			return nil, err
		}
		locker, err := snib.New(d, snib.TTL(time.Duration(m.TTL)*time.Millisecond))
		if err != nil {
			return nil, err
		}
		return lockerOf(locker, m.Name), nil
	})
}

// openTimeout is for how long a target tries to open a store that does not answer: it may be
// started while the servers still recover from a fault.
const openTimeout = 20 * time.Second

// openPause is between two tries.
const openPause = 100 * time.Millisecond

// openPatiently opens a store, again and again while the store does not answer.
func openPatiently(ctx context.Context, s store.Store) (snib.Driver, error) {
	for began := time.Now(); ; {
		d, err := s.Open(ctx)
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

// lockerOf returns snib as a target.
func lockerOf(locker *snib.Locker, name string) target.Locker {
	return func(ctx context.Context, wait time.Duration) (*target.Hold, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		lock, err := locker.Acquire(ctx, name)
		switch {
		case err == nil:
			return &target.Hold{
				Token: lock.Token(), Lost: lock.Lost(),
				Held:    func() bool { return lock.Validity() > 0 },
				Release: func(context.Context) error { return lock.Release() },
			}, nil
		case errors.Is(err, snib.ErrHeld) || errors.Is(err, context.DeadlineExceeded):
			return nil, target.ErrDenied
		}
		return nil, err
	}
}
