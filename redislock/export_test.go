package redislock

// TagOf is tagOf, for tests of the wire format.
func TagOf(slot uint16) string { return tagOf(slot) }
