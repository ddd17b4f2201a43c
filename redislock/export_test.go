package redislock

import (
	"github.com/redis/rueidis"

	"github.com/sniblock/snib/driver"
)

// TagOf is tagOf, for tests of the wire format.
func TagOf(slot uint16) string { return tagOf(slot) }

// ConnOf returns the Conn that New makes.
func ConnOf(client rueidis.Client) Conn { return &rueidisConn{client: client} }

// RequestScript is requestScript.
var RequestScript = requestScript

// HasLeases reports whether a driver remembers any lease.
func HasLeases(d *Driver) bool { return d.hasLeases() }

// Until returns how long a driver remembers a lease that nobody renews.
func Until(l driver.Lease) driver.Instant { return l.(*lease).until }

// SlotOf is slotOf.
func SlotOf(key string) uint16 { return slotOf(key) }
