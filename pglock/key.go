package pglock

import (
	"crypto/sha256"
	"encoding/binary"
)

// NameKey returns the number of the advisory lock of a name, unless [Keys] sets another: the
// first 64 bits, big-endian, of the SHA-256 of "snib/1:" and the name, as a signed number.
func NameKey(name string) int64 {
	sum := sha256.Sum256([]byte("snib/1:" + name))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
