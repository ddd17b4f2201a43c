package redlock

import (
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
)

const (
	// metaKey is the hash in which a node keeps its own state and the counters. If it is
	// evicted or flushed, all of that is lost together.
	metaKey = "snib.redlock"

	// reservedPrefix begins the names of the driver's own keys. If a lock's name begins with
	// it, the lock's key begins with lockPrefix.
	reservedPrefix = "snib."
	lockPrefix     = "snib.l:"

	// waitersPrefix and the lock's key make the key of the hash of the lock's waiters. The same
	// string names the channel on which releases are published.
	waitersPrefix = "snib.rw:"
)

// keyOf returns the key of a lock: its name, byte by byte, unless the name begins with the
// reserved prefix.
func keyOf(name string) string {
	if strings.HasPrefix(name, reservedPrefix) {
		return lockPrefix + name
	}
	return name
}

// waitersKeyOf returns the key of a lock's waiters.
func waitersKeyOf(name string) string { return waitersPrefix + keyOf(name) }

// nameOf returns the lock's name for the key of a lock or of its waiters. A key that the driver
// did not make may look like the key of a lock; only its value tells.
func nameOf(key string) (name string, ok bool) {
	key = strings.TrimPrefix(key, waitersPrefix)
	if name, ok = strings.CutPrefix(key, lockPrefix); ok {
		return name, strings.HasPrefix(name, reservedPrefix)
	}
	return key, key != "" && !strings.HasPrefix(key, reservedPrefix)
}

// stripes is the number of counters on a node. Names share them, which limits a node's
// memory. Sharing is harmless: tokens that are in order for all names of a stripe are in
// order for each name.
const stripes = 1 << 12

// stripeOf returns the stripe of a lock, and the hash field of its counter.
func stripeOf(name string) (stripe int, field string) {
	stripe = int(crc32.ChecksumIEEE([]byte(name)) % stripes)
	return stripe, counterFields()[stripe]
}

// counterFields returns the names of the counters' fields, so that no request has to
// format one.
var counterFields = sync.OnceValue(func() *[stripes]string {
	all := new([stripes]string)
	for i := range all {
		all[i] = "c" + strconv.Itoa(i)
	}
	return all
})
