package redlock

import (
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
)

const (
	// metaKey is the hash in which a node keeps all that it knows of itself, and the counters: evicted or flushed, all of it is gone.
	metaKey = "snib.redlock"

	// reserved begins the names of our own keys, and lockPrefix the key of a lock whose name begins like one of them.
	reserved   = "snib."
	lockPrefix = "snib.l:"

	// waitPrefix begins the key of the hash of those who wait for a lock, before the lock's own. It is the name of the channel on which they hear of a release.
	waitPrefix = "snib.rw:"
)

// keyOf returns the key of a lock: its name, byte by byte, unless that begins like our own keys.
func keyOf(name string) string {
	if strings.HasPrefix(name, reserved) {
		return lockPrefix + name
	}
	return name
}

// waitKeyOf returns the key of those who wait for a lock.
func waitKeyOf(name string) string { return waitPrefix + keyOf(name) }

// nameIn returns the lock's name from the key of the lock, or of those who wait for it. A key that is not ours may be the key of a
// lock, too: its value tells.
func nameIn(key string) (name string, ok bool) {
	key = strings.TrimPrefix(key, waitPrefix)
	if name, ok = strings.CutPrefix(key, lockPrefix); ok {
		return name, strings.HasPrefix(name, reserved)
	}
	return key, key != "" && !strings.HasPrefix(key, reserved)
}

// stripes is the number of counters of a node. Names share them, which keeps the memory of nodes bounded, and costs nothing: what
// is in order for all names of a stripe is in order for each.
const stripes = 1 << 12

// stripeOf returns the field in which the counter of a lock stands.
func stripeOf(name string) (stripe int, field string) {
	stripe = int(crc32.ChecksumIEEE([]byte(name)) % stripes)
	return stripe, stripeFields()[stripe]
}

// stripeFields returns the names of the counters' fields, so that no request has to make one.
var stripeFields = sync.OnceValue(func() *[stripes]string {
	all := new([stripes]string)
	for i := range all {
		all[i] = "c" + strconv.Itoa(i)
	}
	return all
})
