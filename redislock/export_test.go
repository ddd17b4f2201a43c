package redislock

import "github.com/redis/rueidis"

// TagOf is tagOf, for tests of the wire format.
func TagOf(slot uint16) string { return tagOf(slot) }

// ConnOf returns the Conn that New makes.
func ConnOf(client rueidis.Client) Conn { return &rueidisConn{client: client} }

// RequestScript is requestScript.
var RequestScript = requestScript

// HasLeases reports whether a driver remembers any lease.
func HasLeases(d *Driver) bool { return d.hasLeases() }
