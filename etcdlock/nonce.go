package etcdlock

import (
	"strconv"
	"sync"
)

// Nonces are what tells the keys of a driver for one name apart. One is used again once it is certain that no key with it is in etcd, nor
// can come to be: etcd keeps each key that was deleted in its index until it is compacted, and every look at a queue passes
// all of those that were ever in it. Who takes a lock over and over shall not make that slower each time.
type nonces struct {
	driver string // unique over all processes and time

	mu     sync.Mutex
	serial uint64   // of the last one that was made
	free   []string // as many as were in use at a time
}

// take returns a nonce that nobody has.
func (n *nonces) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.free) - 1; last >= 0 { // the one that was given back last: most likely by the same name
		nonce := n.free[last]
		n.free = n.free[:last]
		return nonce
	}
	n.serial++
	return n.driver + strconv.FormatUint(n.serial, 36)
}

// give takes a nonce back. Where a request that was given up could put its key yet, or a key is to stay, it is not given.
func (n *nonces) give(nonce string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, nonce)
}
