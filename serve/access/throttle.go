package access

import (
	"container/list"
	"crypto/sha256"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/serve"
)

const (
	// failureBurst is how many failures of one client are answered at once, and failureInterval
	// how long it then waits for each further one.
	failureBurst    = 20
	failureInterval = 3 * time.Second

	// These bound the failures of all clients. They matter once there are more clients than a
	// throttle remembers.
	allBurst    = 500
	allInterval = time.Second / 200

	// These bound the memory of a throttle: clients, and credentials of one that worked.
	throttleSize     = 10_000
	workingPerClient = 16
)

// A throttle slows clients that try credentials. When it has no more room, it forgets the client
// that has tried least recently. Clients that fail come in no faster than allInterval, so those
// that come back within most of throttleSize times that are not forgotten.
//
// A credential that has worked for a client is not blocked by failures of others at its address.
type throttle struct {
	mu      sync.Mutex
	all     bucket
	clients map[netip.Prefix]*list.Element // of *client
	recent  *list.List                     // the latest first
}

// A client is what a throttle knows of an address.
type client struct {
	network  netip.Prefix
	failures bucket
	blocked  bool                // since the last credential that was checked
	working  [][sha256.Size]byte // digests of credentials, the latest last
}

func newThrottle() *throttle {
	return &throttle{
		all:     bucket{burst: allBurst, interval: allInterval},
		clients: map[netip.Prefix]*list.Element{},
		recent:  list.New(),
	}
}

// try counts a credential as a failure before it is checked, so that many at once are no way
// around. If it returns nil, the credential may be checked, and worked must be called if it is
// right.
func (t *throttle) try(addr netip.Addr, credential string, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.clients[serve.Network(addr)]; !known {
		if wait := t.all.wait(now); wait > 0 {
			return &BlockedError{RetryAfter: wait, First: true}
		}
	}
	c := t.client(addr)
	if slices.Contains(c.working, sha256.Sum256([]byte(credential))) {
		return nil
	}
	if wait := max(c.failures.wait(now), t.all.wait(now)); wait > 0 {
		first := !c.blocked
		c.blocked = true
		return &BlockedError{RetryAfter: wait, First: first}
	}
	c.blocked = false
	c.failures.take(now)
	t.all.take(now)
	return nil
}

// worked takes back that a credential was counted as a failure, and remembers it.
func (t *throttle) worked(addr netip.Addr, credential string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	digest := sha256.Sum256([]byte(credential))
	c := t.client(addr)
	if slices.Contains(c.working, digest) {
		return
	}
	t.giveBackLocked(c)
	if len(c.working) == workingPerClient {
		c.working = c.working[1:]
	}
	c.working = append(c.working, digest)
}

// giveBack takes back that a credential was counted as a failure, because it could not be checked.
func (t *throttle) giveBack(addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.client(addr)
	t.giveBackLocked(c)
	if c.failures.used == 0 && len(c.working) == 0 { // it needs no room, which others may
		t.recent.Remove(t.clients[c.network])
		delete(t.clients, c.network)
	}
}

func (t *throttle) giveBackLocked(c *client) {
	c.failures.giveBack()
	t.all.giveBack()
}

// client returns what is known of an address, as the latest.
func (t *throttle) client(addr netip.Addr) *client {
	network := serve.Network(addr)
	if e, ok := t.clients[network]; ok {
		t.recent.MoveToFront(e)
		return e.Value.(*client)
	}
	if t.recent.Len() == throttleSize {
		oldest := t.recent.Remove(t.recent.Back()).(*client)
		delete(t.clients, oldest.network)
	}
	c := &client{network: network, failures: bucket{burst: failureBurst, interval: failureInterval}}
	t.clients[network] = t.recent.PushFront(c)
	return c
}

// A bucket allows a burst, and then one more in each interval. Unlike a rate.Limiter, it can give
// back what was taken.
type bucket struct {
	burst    int
	interval time.Duration

	used time.Duration // what has been taken, in intervals, at the time of last
	last time.Time
}

// wait returns how long it takes until the bucket allows one more.
func (b *bucket) wait(now time.Time) time.Duration {
	b.used = max(0, b.used-now.Sub(b.last))
	b.last = now
	return max(0, b.used-time.Duration(b.burst-1)*b.interval)
}

// take takes one, as allowed by wait.
func (b *bucket) take(now time.Time) {
	b.wait(now)
	b.used += b.interval
}

// giveBack gives back what was taken last.
func (b *bucket) giveBack() { b.used = max(0, b.used-b.interval) }
