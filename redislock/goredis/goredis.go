// Package goredis makes a redislock driver from a go-redis client, for programs that have one
// already:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	d, err := goredis.New(ctx, client)
//	if err != nil {
//		return err
//	}
//	locker, err := snib.New(d)
//
// Locks, keys and promises are those of package redislock. Processes that use this package,
// rueidis or a URL share locks.
//
// A driver has a pool of its own, with the options of the client. So commands of the program that
// block, or that are slow, never keep a renewal waiting. Hooks of the client don't see the driver's
// commands. While it waits or holds something, a driver uses one more connection for subscriptions;
// in a Cluster it uses one for each slot in which it waits.
//
// A [redis.Client] is one server, or a master behind Sentinel ([redis.NewFailoverClient]). A
// [redis.ClusterClient] is a Cluster. Other clients are rejected: a [redis.Ring] because its
// servers know nothing of one another, and a client of [redis.NewFailoverClusterClient] because
// it treats servers as a Cluster that are not one.
//
// Whatever the client's settings, go-redis repeats none of the driver's commands: a lock that was
// granted would then appear to be held by somebody else. It observes the deadlines of contexts, and
// behind Sentinel it asks for the master every 10 s, and stays there if no Sentinel answers.
package goredis

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

// dialTimeout bounds the check of a Cluster that New makes before the driver's own.
const dialTimeout = 5 * time.Second

// New returns a driver that connects as client does, and leaves client open. The driver must be
// closed before client: if that uses Sentinel, it finds the master for both. New fails in the same
// cases as [redislock.New], and with the same errors. If the client is of an unsupported kind, the
// error matches [driver.ErrInvalid].
func New(ctx context.Context, client redis.UniversalClient, opts ...redislock.Option) (*redislock.Driver, error) {
	checks, stopChecks := context.WithCancel(context.Background())
	c := &conn{stopChecks: stopChecks}
	switch client := client.(type) {
	case *redis.Client:
		c.client = ownClient(checks, client)
	case *redis.ClusterClient:
		c.cluster = ownCluster(client)
		c.client = c.cluster
		c.clusterErr = checkCluster(ctx, c.cluster)
	case *redis.Ring:
		return nil, driver.Invalidf(
			"client: the servers of a Ring do not know each other, and a lock would be lost with its server; " +
				"use a client of one server, of Sentinel or of a Cluster")
	default:
		return nil, driver.Invalidf("client: %T is neither a *redis.Client nor a *redis.ClusterClient", client)
	}
	return redislock.NewConn(ctx, c, opts...)
}

// ownClient returns a client for the driver that connects as the program's client does. Behind
// Sentinel it looks for the master until checks is done.
func ownClient(checks context.Context, program *redis.Client) *redis.Client {
	o := *program.Options()
	if isSentinel(&o) {
		d := &masterDialer{dial: o.Dialer, conns: make(map[*masterConn]bool)}
		o.Dialer = d.dialMaster
		go d.checkMaster(checks, o.Network, o.Addr)
	}
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = asGiven(o.ReadTimeout), asGiven(o.WriteTimeout), true
	o.MinIdleConns, o.MaxActiveConns = 0, 0
	o.PushNotificationProcessor = nil // that of the program's client
	o.ClientSideCache, o.ClientSideCacheConfig = nil, nil
	return redis.NewClient(&o)
}

// ownCluster is ownClient for a Cluster.
func ownCluster(program *redis.ClusterClient) *redis.ClusterClient {
	o := *program.Options()
	o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = asGiven(o.ReadTimeout), asGiven(o.WriteTimeout), true
	o.MinIdleConns, o.MaxActiveConns = 0, 0
	return redis.NewClusterClient(&o)
}

// asGiven returns a timeout as a program gives it to a client that then has the timeout d. If that
// is none, the deadlines of contexts still count.
func asGiven(d time.Duration) time.Duration {
	if d <= 0 {
		return -1
	}
	return d
}

// checkCluster rejects a ClusterClient that does not talk to a Cluster.
func checkCluster(ctx context.Context, client *redis.ClusterClient) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	_, err := callWithContext(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			cmd := &noRetryCmd{redis.NewCmd(ctx, "INFO", "cluster")}
			_ = master.Process(ctx, cmd) // cmd has the error
			text, err := cmd.Text()
			if err == nil && strings.Contains(text, "cluster_enabled:0") {
				return errNoCluster
			}
			return err
		})
	})
	// A server that is not a Cluster may fail before INFO.
	if err = asReplyError(err); err != nil && strings.Contains(err.Error(), "cluster support disabled") {
		return errNoCluster
	}
	return err
}

var errNoCluster = driver.Invalidf(
	"client: a ClusterClient for servers that are not a Cluster would use other keys than clients of one server; " +
		"use redis.NewClient, or redis.NewFailoverClient with Sentinel")
