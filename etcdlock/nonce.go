package etcdlock

import (
	"strconv"
	"sync"
)

// Nonces distinguish the keys of a driver for one name. A nonce is used again once it is
// certain that no key with it exists in etcd, or can appear. etcd keeps each deleted key in its
// index until it is compacted, and every read of a queue passes all keys that were ever in it.
// So without reuse, a lock that is taken over and over would become slower each time.
type nonces struct {
	driver string // unique over all processes and time

	mu     sync.Mutex
	serial uint64   // of the latest new nonce
	free   []string // at most as many as were in use at the same time
}

// take returns a nonce that is not in use.
func (n *nonces) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	// The nonce that was returned last was most likely used for the same name.
	if last := len(n.free) - 1; last >= 0 {
		nonce := n.free[last]
		n.free = n.free[:last]
		return nonce
	}
	n.serial++
	return n.driver + strconv.FormatUint(n.serial, 36)
}

// giveBack returns a nonce for reuse. It must not be called if an abandoned request may still
// put a key with it, or if such a key stays.
func (n *nonces) giveBack(nonce string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, nonce)
}
