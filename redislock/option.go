package redislock

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

// An Option changes what a driver does. The zero set is right for most.
type Option func(*config)

type config struct {
	grace      bool
	floor      time.Duration
	maxTTL     time.Duration
	splitBrain bool
	topology   topology
}

// A topology is what must be found behind an address.
type topology uint8

const (
	anyTopology topology = iota
	single
	cluster
)

func configure(opts []Option) config {
	conf := config{grace: true, floor: defaultFloor, maxTTL: defaultMaxTTL}
	for _, o := range opts {
		o(&conf)
	}
	return conf
}

const (
	defaultFloor  = 30 * time.Second
	defaultMaxTTL = time.Hour

	// sentinelFloor is the least floor behind Sentinel. A master that was replaced, and restarts, is taken for the master by clients
	// that reach it until the Sentinels have told it what it is: they do that after eight seconds, and look every second.
	sentinelFloor = 20 * time.Second
)

// check refuses limits that can't be.
func (c *config) check() error {
	switch {
	case c.maxTTL < minTTL || c.maxTTL > maxTTL:
		return fmt.Errorf("%w MaxTTL %v: it must be from %v to %v", driver.ErrInvalid, c.maxTTL, minTTL, maxTTL)
	case c.floor < 0 || c.floor > maxTTL:
		return fmt.Errorf("%w GraceFloor %v: it must be from 0 to %v", driver.ErrInvalid, c.floor, maxTTL)
	}
	return nil
}

// FailoverGrace says whether a server that has restarted, or was promoted, grants nothing until the leases that it may have forgotten
// are over. It is on by default; off, a failover can give a lock twice. The grace lasts as long as the longest lease that the server knows
// to live, and [GraceFloor] at least. A new server is taken for one that has lost its memory.
//
// It asks the server for INFO. All processes that share locks should have the same setting.
func FailoverGrace(on bool) Option { return func(c *config) { c.grace = on } }

// GraceFloor sets the least time for which a server grants nothing after a restart or a failover, 30 seconds by default, and 20 seconds at
// least behind Sentinel. Leases no longer than that are covered also if the server has forgotten everything. Set it to the longest TTL in
// use. All processes that share locks should have the same setting.
func GraceFloor(d time.Duration) Option { return func(c *config) { c.floor = d } }

// MaxTTL sets the longest TTL that may be asked for, an hour by default. It bounds the grace as well, so that one long lease does not
// close the store for its length after a restart. All processes that share locks should have the same setting: one whose MaxTTL is shorter
// passes over waiters that ask for more.
func MaxTTL(d time.Duration) Option { return func(c *config) { c.maxTTL = d } }

// AllowSplitBrain accepts a master behind Sentinel that writes without a replica. When it is cut off, or stops for a while, the Sentinels
// choose another, and both grant the same locks until it learns of that. Without this option New and Open refuse such a master;
// min-replicas-to-write 1 and a small min-replicas-max-lag, on all servers, are right.
func AllowSplitBrain() Option { return func(c *config) { c.splitBrain = true } }

// Single demands one server, alone or behind Sentinel: with a node of a Cluster, Open and New fail.
func Single() Option { return func(c *config) { c.topology = single } }

// Cluster demands a Cluster: without one, Open and New fail.
func Cluster() Option { return func(c *config) { c.topology = cluster } }
