package redislock

// TagOf is tagOf, for tests of the wire format.
func TagOf(slot uint16) string { return tagOf(slot) }

// RecordTimeout is recordTimeout, for which List waits before it reads.
const RecordTimeout = recordTimeout
