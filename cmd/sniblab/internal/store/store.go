// Package store opens snib's drivers on the stores of trials, of the nemesis and of lock services,
// as a user would do it.
package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/rueidis"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/mysqllock"
	"github.com/sniblock/snib/pglock"
	"github.com/sniblock/snib/redislock"
	"github.com/sniblock/snib/redlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/sqlitelock"
	"github.com/sniblock/snib/zklock"
)

// dialTimeout bounds a connection to a server that does not answer.
const dialTimeout = 5 * time.Second

// A Store says how a process connects to a store.
type Store struct {
	Kind  string
	Addrs []string // of servers, of replicas of a service, or a URL of PostgreSQL, or the path of a file

	NoGrace    bool          // a Redis without FailoverGrace: a negative control
	SplitBrain bool          // a Redis with AllowSplitBrain
	GraceFloor time.Duration // of Redis
	MaxTTL     time.Duration // of Redlock
	Timeout    time.Duration // of Redlock for a node; 0 for the default
	User       string        // the user of Redis, and its password; "" for the default user
	Session    time.Duration // the timeout of sessions
	Certs      string        // the folder with the authority of a service; "" for one without TLS

	// Dial connects to Redis; nil means the default.
	Dial func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) `json:"-"`
}

// Open returns a driver for the store, which need not be available.
func (s Store) Open(ctx context.Context) (driver.Driver, error) {
	switch s.Kind {
	case "sqlite":
		return sqlitelock.Open(ctx, s.Addrs[0])
	case "served":
		return s.openService(ctx)
	case "memory":
		return memlock.New(), nil
	case "redis", "cluster", "sentinel":
		return redislock.Open(ctx, s.client(s.Addrs...), s.RedisOptions()...)
	case "redlock":
		return redlock.Open(ctx, s.Nodes(), s.RedlockOptions()...)
	case "pg", "pgsession":
		url := s.Addrs[0]
		if !strings.Contains(url, "://") {
			url = pgtest.URL(url)
		}
		c, err := pgxpool.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		c.ConnConfig.ConnectTimeout = dialTimeout
		pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), c)
		if err != nil {
			return nil, err
		}
		if s.Kind == "pg" {
			d, err := pglock.New(pool)
			return driverWithClient{d, pool.Close}, err
		}
		d, err := pglock.NewSession(pool, pglock.Timeout(s.Session))
		return driverWithClient{d, pool.Close}, err
	case "mysql":
		conf, err := mysql.ParseDSN(mysqltest.DSN(s.Addrs[0], "timeout="+dialTimeout.String()))
		if err != nil {
			return nil, err
		}
		conf.Logger = &mysql.NopLogger{} // it would log each broken connection
		return mysqllock.New(conf)
	case "zk", "zkkeep":
		opts := []zklock.Option{zklock.Timeout(s.Session), zklock.DialTimeout(time.Second)}
		if s.Kind == "zkkeep" {
			opts = append(opts, zklock.KeepSuspended())
		}
		return zklock.New(s.Addrs, opts...)
	case "etcd":
		client, err := clientv3.New(clientv3.Config{
			Endpoints: s.Addrs, DialTimeout: dialTimeout, DialKeepAliveTime: 5 * time.Second,
			DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(), Context: context.WithoutCancel(ctx),
		})
		if err != nil {
			return nil, err
		}
		d, err := etcdlock.New(client, etcdlock.Timeout(s.Session))
		return driverWithClient{d, func() { _ = client.Close() }}, err
	}
	return nil, fmt.Errorf("there is no store %q", s.Kind)
}

// client returns the client options for a Redis at these addresses.
func (s Store) client(addrs ...string) rueidis.ClientOption {
	o := rueidis.ClientOption{InitAddress: addrs, Username: s.User, Password: s.User, DialCtxFn: s.Dial}
	if s.Kind == "sentinel" {
		o.Sentinel = rueidis.SentinelOption{MasterSet: "mymaster"}
	}
	return o
}

// Nodes returns the client options for the servers of a Redlock.
func (s Store) Nodes() []rueidis.ClientOption {
	var nodes []rueidis.ClientOption
	for _, addr := range s.Addrs {
		nodes = append(nodes, s.client(addr))
	}
	return nodes
}

// RedisOptions returns the options of all Redis stores except Redlock.
func (s Store) RedisOptions() []redislock.Option {
	opts := []redislock.Option{redislock.FailoverGrace(!s.NoGrace)}
	if s.GraceFloor > 0 {
		opts = append(opts, redislock.GraceFloor(s.GraceFloor))
	}
	if s.SplitBrain {
		opts = append(opts, redislock.AllowSplitBrain())
	}
	return opts
}

// RedlockOptions returns the options of a Redlock.
func (s Store) RedlockOptions() []redlock.Option {
	opts := []redlock.Option{redlock.MaxTTL(s.MaxTTL)}
	if s.Timeout > 0 {
		opts = append(opts, redlock.NodeTimeout(s.Timeout))
	}
	return opts
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

// openService returns a driver for the replicas. It prefers the first one.
func (s Store) openService(ctx context.Context) (driver.Driver, error) {
	var conf remotelock.Config
	scheme := "http://"
	if s.Certs != "" {
		authority, err := os.ReadFile(filepath.Join(s.Certs, livetest.AuthorityFile))
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		scheme, conf.TLS = "https://", &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	for _, addr := range s.Addrs {
		conf.Servers = append(conf.Servers, scheme+addr)
	}
	return remotelock.Open(ctx, conf)
}

// Listen serves with the certificate in a folder, and then also HTTP/2; "" means without TLS.
func Listen(server *http.Server, l net.Listener, certs string) error {
	if certs == "" {
		return server.Serve(l)
	}
	return server.ServeTLS(l, filepath.Join(certs, livetest.CertFile), filepath.Join(certs, livetest.KeyFile))
}
