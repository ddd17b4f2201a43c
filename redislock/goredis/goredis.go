// Package goredis makes a redislock driver of a go-redis client, for programs that have one already:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	d, err := goredis.New(client)
//	if err != nil {
//		return err
//	}
//	locker, err := snib.New(d)
//
// Locks, keys and promises are those of package redislock, and processes that use this package, rueidis or a URL share locks. Beside
// the pool's connections a driver uses one for subscriptions, while it waits or holds something for long; in a Cluster, one for each
// slot that it waits in.
//
// # Clients
//
// A [redis.Client] is one server, also behind Sentinel ([redis.NewFailoverClient]), and a [redis.ClusterClient] is a Cluster. Others are
// refused: a [redis.Ring] because its servers know nothing of one another, and what [redis.NewFailoverClusterClient] makes because it
// takes for a Cluster what is none.
//
// # Repeated commands
//
// go-redis sends a command again when a connection breaks before the answer has come (MaxRetries, 3 times by default), which turns a lock
// that was granted into one that is held by somebody else. The commands of this package are exempt from that, whatever the client's
// settings: only the driver asks again, in a way that the server recognises.
//
// # Deadlines
//
// A call returns when its context ends, also if the client does not look at contexts (ContextTimeoutEnabled). The connection that it
// was sent on then waits for its answer for as long as ReadTimeout says, which should stay on. So does the next call for the same slot, for a
// second at most: on another connection it could overtake the first one, and leave behind a lock that was withdrawn.
package goredis

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock"
)

// dialTimeout bounds what New asks a Cluster before the driver does.
const dialTimeout = 5 * time.Second

// New returns a driver on the user's own client, which Close leaves open. It fails as [redislock.New] does, and with an error that
// matches [driver.ErrInvalid] if the client is of a kind that does not do.
func New(client redis.UniversalClient, opts ...redislock.Option) (*redislock.Driver, error) {
	c := &conn{client: client}
	switch client := client.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		c.cluster = client
		if err := checkCluster(client); err != nil {
			return nil, err
		}
	case *redis.Ring:
		return nil, fmt.Errorf("%w client: the servers of a Ring know nothing of one another, and a lock would be lost with one of them; "+
			"use a client of one server, of Sentinel or of a Cluster", driver.ErrInvalid)
	default:
		return nil, fmt.Errorf("%w client: %T is neither a *redis.Client nor a *redis.ClusterClient", driver.ErrInvalid, client)
	}
	return redislock.NewConn(c, opts...)
}

// checkCluster refuses a client for Clusters of what is none.
func checkCluster(client *redis.ClusterClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	_, err := bounded(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			cmd := &once{redis.NewCmd(ctx, "INFO", "cluster")}
			_ = master.Process(ctx, cmd) // the command has the error
			text, err := cmd.Text()
			if err == nil && strings.Contains(text, "cluster_enabled:0") {
				return errNoCluster
			}
			return err
		})
	})
	if err = answered(err); err != nil && strings.Contains(err.Error(), "cluster support disabled") { // it did not get as far as INFO
		return errNoCluster
	}
	return err
}

var errNoCluster = fmt.Errorf("%w client: a ClusterClient of servers that are no Cluster would use other keys than clients of one server; "+
	"use redis.NewClient, or redis.NewFailoverClient with Sentinel", driver.ErrInvalid)
