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
	"github.com/sniblock/snib/redislock/redlock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

const (
	// ttl is that of most holds, and of sessions where it can be.
	ttl = 2 * time.Second

	// shortTTL and longTTL are those of some holds, where leases have a TTL of their own.
	shortTTL = ttl / 2
	longTTL  = 4 * ttl
)

// A Store says how a process reaches a store.
type Store struct {
	Kind    string
	Addrs   []string // or the path of a file
	NoGrace bool     // a Redis without FailoverGrace: a negative control

	User    string        // of Redis, and the password; "" for the default one
	Session time.Duration // the timeout of sessions; 0 for what set-ups have

	dial func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) // how Redis is reached; nil for the usual way
}

// open returns a driver for the store, as a user would make it. It does not need the store to be up.
func (s Store) open(ctx context.Context) (driver.Driver, error) {
	switch s.Kind {
	case "sqlite":
		return sqlitelock.Open(s.Addrs[0])
	case "sqlite-clock":
		return sqlitelock.Open(s.Addrs[0], sqlitelock.Fencing(driver.FencingClock))
	case "memory":
		return memlock.New(), nil
	case "redis", "cluster", "sentinel":
		return redislock.Open(s.client(s.Addrs...), s.redisOptions()...)
	case "redlock":
		return redlock.Open(s.nodes(), redlockOptions()...)
	case "pg", "pgsession":
		pool, err := pgxpool.New(ctx, pgtest.URL(s.Addrs[0]))
		if err != nil {
			return nil, err
		}
		if s.Kind == "pg" {
			return closes{pglock.New(pool), pool.Close}, nil
		}
		return closes{pglock.NewSession(pool, pglock.Timeout(cmp.Or(s.Session, ttl))), pool.Close}, nil
	case "mysql", "mysqlsession":
		conf, err := mysql.ParseDSN(mysqltest.DSN(s.Addrs[0]))
		if err != nil {
			return nil, err
		}
		conf.Logger = &mysql.NopLogger{} // it would tell of each connection that was cut
		connector, err := mysql.NewConnector(conf)
		if err != nil {
			return nil, err
		}
		db := sql.OpenDB(connector)
		end := func() { _ = db.Close() }
		if s.Kind == "mysql" {
			return closes{mysqllock.New(db), end}, nil
		}
		return closes{mysqllock.NewSession(db, mysqllock.Timeout(cmp.Or(s.Session, sessionTimeout))), end}, nil
	case "zk":
		return zklock.New(s.Addrs, zklock.Timeout(cmp.Or(s.Session, zkTimeout)), zklock.DialTimeout(time.Second)), nil
	case "zkkeep":
		return zklock.New(s.Addrs, zklock.Timeout(cmp.Or(s.Session, zkTimeout)), zklock.DialTimeout(time.Second), zklock.KeepSuspended()), nil
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs, DialTimeout: time.Second, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx)})
		if err != nil {
			return nil, err
		}
		return closes{etcdlock.New(client, etcdlock.Timeout(cmp.Or(s.Session, ttl))), func() { _ = client.Close() }}, nil
	}
	return nil, fmt.Errorf("there is no store %q", s.Kind)
}

// The timeouts of sessions that can't be as short as ttl, or ought not to be.
const (
	sessionTimeout = 15 * time.Second // of MySQL: the default, whose third is how often a session asks
	zkTimeout      = 4 * time.Second
)

// client is for a Redis at these addresses.
func (s Store) client(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, Username: s.User, Password: s.User, DialCtxFn: s.dial}
	if s.Kind == "sentinel" {
		o.Sentinel = rueidis.SentinelOption{MasterSet: "mymaster"}
	}
	return o
}

// nodes are the servers of a Redlock.
func (s Store) nodes() []rueidis.ClientOption {
	var nodes []rueidis.ClientOption
	for _, addr := range s.Addrs {
		nodes = append(nodes, s.client(addr))
	}
	return nodes
}

// redisOptions are those of all Redis servers but Redlock's.
func (s Store) redisOptions() []redislock.Option {
	return []redislock.Option{redislock.FailoverGrace(!s.NoGrace), redislock.GraceFloor(longTTL)}
}

func redlockOptions() []redlock.Option {
	return []redlock.Option{redlock.MaxTTL(longTTL), redlock.NodeTimeout(100 * time.Millisecond)}
}

// closes is a driver together with what it was made over.
type closes struct {
	inspected
	end func()
}

// inspected is what all our drivers are.
type inspected interface {
	driver.Driver
	driver.Inspector
}

// Close closes the driver and then the client.
func (c closes) Close() error {
	err := c.inspected.Close()
	c.end()
	return err
}
