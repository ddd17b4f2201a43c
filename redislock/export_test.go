package redislock

import "github.com/redis/rueidis"

// TagOf is tagOf, for tests of the wire format.
func TagOf(slot uint16) string { return tagOf(slot) }

// RecordTimeout is recordTimeout, for which List waits before it reads.
const RecordTimeout = recordTimeout

// ConnOf returns the Conn that New makes.
func ConnOf(client rueidis.Client) Conn { return &rueidisConn{client: client} }

// The scripts that are compared with those of an earlier version.
var FullScript, FastPathScript, FreeScript, EnqueueScript = fullScript, fastPathScript, freeScript, enqueueScript
