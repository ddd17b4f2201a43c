package redislock

import (
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes what a driver does. The defaults are right for most programs.
type Option struct{ set func(*config) }

type config struct {
	grace      bool
	durable    bool
	floor      time.Duration
	maxTTL     time.Duration
	splitBrain bool
	yieldEvery time.Duration // 0: never
	namespace  namespace
}

func configure(opts []Option) (config, error) {
	conf := config{grace: true, floor: defaultFloor, maxTTL: defaultMaxTTL}
	for _, o := range opts {
		if o.set == nil {
			return conf, driver.Invalidf("option: the zero Option")
		}
		o.set(&conf)
	}
	return conf, conf.check()
}

const (
	defaultFloor  = 30 * time.Second
	defaultMaxTTL = time.Hour

	// sentinelFloor is the least floor behind Sentinel. When a master that was replaced
	// restarts, clients that reach it take it for the master until the Sentinels have demoted
	// it. They do that after eight seconds, and check every second.
	sentinelFloor = 20 * time.Second
)

// check returns an error if a limit is out of range, or if options contradict each other.
func (c *config) check() error {
	switch {
	case c.maxTTL < minTTL || c.maxTTL > maxTTL:
		return driver.Invalidf("MaxTTL %v: it must be from %v to %v", c.maxTTL, minTTL, maxTTL)
	case c.floor < 0 || c.floor > maxTTL:
		return driver.Invalidf("GraceFloor %v: it must be from 0 to %v", c.floor, maxTTL)
	case c.yieldEvery != 0 && (c.yieldEvery < minYieldEvery || c.yieldEvery > maxTTL):
		return driver.Invalidf("YieldToForeign %v: it must be 0, or from %v to %v", c.yieldEvery, minYieldEvery, maxTTL)
	case len(c.namespace) > maxNamespace || strings.ContainsAny(string(c.namespace), "{}") ||
		encodeID(string(c.namespace)) != `"`+string(c.namespace)+`"`: // the scripts don't decode it
		return driver.Invalidf("Prefix: it must be UTF-8 of at most %d bytes, without braces and what JSON escapes",
			maxNamespace)
	case c.durable && !c.grace:
		return driver.Invalidf("DurableAOF: it needs FailoverGrace, for a restart that loses the memory")
	}
	return nil
}

// maxNamespace is the most bytes of a namespace.
const maxNamespace = 100

// Prefix puts a prefix before all keys and channels that the driver uses: those of locks, and
// its own. So a user of Redis who may use no others (such as ~app:* and &app:*) can lock, with
// fencing tokens of a counter that no other tenant can write to. The names of locks stay as they
// are. All processes that share locks must have the same Prefix; by default it is empty. It has
// at most 100 bytes, no braces, and nothing that JSON escapes.
func Prefix(text string) Option {
	return Option{func(c *config) { c.namespace = namespace(text) }}
}

// FailoverGrace sets whether a server that has restarted or was promoted grants nothing until
// the leases that it may have forgotten are over. It is on by default. When it is off, a
// failover can give a lock to two holders. The grace period lasts as long as the longest lease
// that the server knows to live, and at least as long as [GraceFloor]. A new server is treated
// as one that has lost its memory. All processes that share locks should have the same setting.
func FailoverGrace(on bool) Option { return Option{func(c *config) { c.grace = on }} }

// GraceFloor sets the minimum time for which a server grants nothing after a restart or a
// failover. The default is 30 seconds; behind Sentinel it is at least 20 seconds. Leases no
// longer than the floor are covered even if the server has forgotten everything, so set it to
// the longest TTL in use. All processes that share locks should have the same setting.
func GraceFloor(d time.Duration) Option { return Option{func(c *config) { c.floor = d }} }

// DurableAOF makes leases and tokens survive a crash of a single server that has an append-only
// file: a grant, and a renewal, count only when they are on the server's disk. Fencing is then
// [driver.FencingDurable], and a server that has restarted with its memory grants at once. One
// that has lost it grants nothing for the time that [GraceFloor] and [MaxTTL] say, as without this
// option.
//
// The server must be Redis 7.2 or later, or Valkey, with appendonly yes, appendfsync always and
// no-appendfsync-on-rewrite no. New and Open refuse another server, a Cluster, a master behind
// Sentinel or with replicas, and this option without [FailoverGrace]. If appendonly is switched off
// later, or a write is not on the disk within 1.5 seconds, the lock is not granted, and the error
// matches [driver.ErrUnavailable].
//
// All processes that share locks must have the same setting: the others do not wait for the leases
// of a process without it, which a crash may make the server forget.
func DurableAOF() Option { return Option{func(c *config) { c.durable = true }} }

// MaxTTL sets the longest TTL that may be requested. The default is an hour. It also bounds the
// grace period, so that one long lease does not close the store for its whole length after a
// restart. All processes that share locks should have the same setting: a process with a
// shorter MaxTTL passes over waiters that request a longer TTL.
func MaxTTL(d time.Duration) Option { return Option{func(c *config) { c.maxTTL = d }} }

// AllowSplitBrain accepts a master behind Sentinel that writes without a replica. When such a
// master is cut off, or pauses for a while, the Sentinels choose another one, and both grant
// the same locks until the old master learns of it. Without this option New and Open reject
// such a master. The right setting, on all servers, is min-replicas-to-write 1 and a small
// min-replicas-max-lag.
func AllowSplitBrain() Option { return Option{func(c *config) { c.splitBrain = true }} }

// minYieldEvery is the shortest time between two moments for foreign clients. A shorter one would
// leave the lock free for most of the time.
const minYieldEvery = time.Second

// YieldToForeign gives clients of other libraries that poll for a lock, such as redis-py, a chance
// while processes of snib wait for it, too. Without it they starve: a release hands the lock to the
// next waiter, and the key is never free. With it, once in this time, by the server's clock, a
// release leaves the lock free for 300 ms, and only then does the next waiter get it. A client that
// polls more often than that gets the lock if no other client is faster. During these 300 ms a
// request with NoWait fails.
//
// The default is 0, which is never; otherwise the time is at least a second. The setting of the
// process that releases counts, so all processes that share locks should have the same one.
func YieldToForeign(every time.Duration) Option {
	return Option{func(c *config) { c.yieldEvery = every }}
}
