// Package redisadmin is for people who operate the Redis servers that package redislock keeps
// locks in. "snib doctor", "snib leaks" and "snib redis forget" are built on it.
package redisadmin

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Admin answers questions about the servers of a driver, and carries out what only their
// operator may decide. The method Admin of a redislock.Driver returns one, which uses the driver's
// connections. Only package redislock implements Admin, which may get methods.
type Admin interface {
	// Servers asks each master for its state and settings.
	Servers(ctx context.Context) ([]Server, error)

	// Strangers calls yield for each abandoned key of another lock library that begins with
	// prefix, until yield returns false: each hash of Redisson without an end, and each string of
	// SET NX clients in the formats of redis-py, redsync, bsm/redislock, node-redlock, redlock-rb,
	// aioredlock, madelson's DistributedLock, pottery, ShedLock and Spring.
	//
	// A string counts as a lock if its value has the format of one of those libraries and its
	// key confirms it: the key begins with the library's prefix or contains the word lock,
	// mutex or semaphore. With a prefix that is not empty, each string and each hash counts,
	// whatever it contains: SETNX of a constant leaves such locks. Keys that expire are not shown,
	// and neither are strings whose value is a time that is not over, and in the next 24 hours:
	// clients of SETNX and GETSET write the end of a lock so.
	//
	// Strangers writes nothing. It scans the servers step by step, and takes memory for one
	// step. It reads each key that begins with prefix.
	Strangers(ctx context.Context, prefix string, yield func(Stranger) bool) error

	// Foreign calls yield for each lock of another lock library whose key begins with prefix, until
	// yield returns false. The same keys count as locks as in Strangers, and those that expire are
	// shown, too. The names of locks are the keys. The Status is the one that the driver's Status
	// returns, without waiters, and without an id if that is longer than 4,096 bytes.
	//
	// Foreign writes nothing, and costs as much as Strangers. A key that is created, deleted or
	// moved meanwhile may be missed or shown twice.
	Foreign(ctx context.Context, prefix string, yield func(driver.Status) bool) error

	// Forget ends the grace period after a restart or a failover on all servers: they are
	// assumed to know all leases. It is for an operator who knows that nobody holds a lock that
	// the servers forgot; otherwise two processes may hold it. In a Cluster it writes to each
	// of the 16,384 slots.
	Forget(ctx context.Context) error
}

// A Server is what a master reports about itself.
type Server struct {
	// Info has the fields of the answer to INFO, by name.
	Info map[string]string

	// Settings are the configuration parameters that locks rely on, by name: appendonly,
	// appendfsync, no-appendfsync-on-rewrite, save and min-replicas-to-write. A parameter that the
	// user may not read is missing.
	Settings map[string]string

	// LastToken is the last fencing token that the server has granted. Clock is the server's
	// time in the unit of tokens, microseconds. Both are 0 in a Cluster, where each slot has
	// its own tokens, and if the user may not read them.
	LastToken, Clock uint64

	// Ahead is how far the server's clock is ahead of this host's, to within half of RoundTrip.
	Ahead, RoundTrip time.Duration
}

// A Stranger is a key that another lock library left in Redis and that nothing will ever
// remove.
type Stranger struct {
	Key     string
	Library string // description of the library whose format it is, or "" if that is not known
	Problem string // a clause: "it has no end"

	// Unsure means that the key counts as a lock only because the caller gave a prefix. It may be
	// something else.
	Unsure bool

	// Value is the id to pass to the driver's Break to delete the key. It is
	// empty if the key is not a string, or if the value is longer than 4,096 bytes and was not read.
	Value string
}
