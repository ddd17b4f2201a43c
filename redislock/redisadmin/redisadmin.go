// Package redisadmin has what an Admin of package redislock returns.
package redisadmin

import "time"

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
