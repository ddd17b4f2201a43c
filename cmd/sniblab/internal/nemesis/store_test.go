//go:build linux

package nemesis

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

const (
	// ttl is the TTL of most holds, and of sessions where possible.
	ttl = 2 * time.Second

	// shortTTL and longTTL are the TTLs of some holds if leases have their own TTL.
	shortTTL = ttl / 2
	longTTL  = 4 * ttl
)

// A Store says how a process connects to a store.
type Store struct {
	Kind    string
	Addrs   []string // or the path of a file
	NoGrace bool     // a Redis without FailoverGrace: a negative control

	Certs   string        // the folder with the authority of a service; "" for one without TLS
	MaxTTL  time.Duration // of Redlock; 0 for longTTL
	User    string        // the user of Redis, and its password; "" for the default user
	Session time.Duration // the timeout of sessions; 0 for that of the set-ups

	// dial connects to Redis; nil means the default.
	dial func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)
}

// open returns a driver for the store, created as a user would do it. The store
// need not be available.
func (s Store) open(ctx context.Context) (driver.Driver, error) {
	switch s.Kind {
	case "sqlite":
		return sqlitelock.Open(ctx, s.Addrs[0])
	case "served":
		return s.openService(ctx)
	case "memory":
		return memlock.New(), nil
	case "redis", "cluster", "sentinel":
		return redislock.Open(ctx, s.client(s.Addrs...), s.redisOptions()...)
	case "redlock":
		return redlock.Open(ctx, s.nodes(), s.redlockOptions()...)
	case "pg", "pgsession":
		pool, err := pgxpool.New(ctx, pgtest.URL(s.Addrs[0]))
		if err != nil {
			return nil, err
		}
		if s.Kind == "pg" {
			d, err := pglock.New(pool)
			return driverWithClient{d, pool.Close}, err
		}
		d, err := pglock.NewSession(pool, pglock.Timeout(cmp.Or(s.Session, ttl)))
		return driverWithClient{d, pool.Close}, err
	case "mysql":
		conf, err := mysql.ParseDSN(mysqltest.DSN(s.Addrs[0]))
		if err != nil {
			return nil, err
		}
		conf.Logger = &mysql.NopLogger{} // it would log each broken connection
		connector, err := mysql.NewConnector(conf)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		d, err := mysqllock.New(db)
		return driverWithClient{d, func() { _ = db.Close() }}, err
	case "zk":
		return zklock.New(s.Addrs, zklock.Timeout(cmp.Or(s.Session, zkTimeout)), zklock.DialTimeout(time.Second))
	case "zkkeep":
		return zklock.New(s.Addrs, zklock.Timeout(cmp.Or(s.Session, zkTimeout)), zklock.DialTimeout(time.Second),
			zklock.KeepSuspended())
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs, DialTimeout: time.Second, Logger: zap.NewNop(),
			Context: context.WithoutCancel(ctx)})
		if err != nil {
			return nil, err
		}
		d, err := etcdlock.New(client, etcdlock.Timeout(cmp.Or(s.Session, ttl)))
		return driverWithClient{d, func() { _ = client.Close() }}, err
	}
	return nil, fmt.Errorf("there is no store %q", s.Kind)
}

// zkTimeout is the timeout of ZooKeeper's sessions, which can't be as short as ttl.
const zkTimeout = 4 * time.Second

// client returns the client options for a Redis at these addresses.
func (s Store) client(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, Username: s.User, Password: s.User, DialCtxFn: s.dial}
	if s.Kind == "sentinel" {
		o.Sentinel = rueidis.SentinelOption{MasterSet: "mymaster"}
	}
	return o
}

// nodes returns the client options for the servers of a Redlock.
func (s Store) nodes() []rueidis.ClientOption {
	var nodes []rueidis.ClientOption
	for _, addr := range s.Addrs {
		nodes = append(nodes, s.client(addr))
	}
	return nodes
}

// redisOptions returns the options of all Redis stores except Redlock.
func (s Store) redisOptions() []redislock.Option {
	return []redislock.Option{redislock.FailoverGrace(!s.NoGrace), redislock.GraceFloor(longTTL)}
}

func (s Store) redlockOptions() []redlock.Option {
	return []redlock.Option{redlock.MaxTTL(cmp.Or(s.MaxTTL, longTTL)), redlock.NodeTimeout(100 * time.Millisecond)}
}

// A driverWithClient is a driver together with its client.
type driverWithClient struct {
	driver.Driver
	closeClient func()
}

// Close closes the driver and then the client.
func (c driverWithClient) Close() error {
	err := c.Driver.Close()
	c.closeClient()
	return err
}
