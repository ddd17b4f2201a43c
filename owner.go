package snib

import "github.com/sniblock/snib/driver"

// ownerHolds are the living holds whose owner was set by Owner. All acquisitions of one owner
// share a lease in the store, so within the process they share a hold.
type ownerHolds map[ownerKey]*hold

// An ownerKey finds the hold of an owner on a name.
type ownerKey struct{ owner, name string }

func (o ownerHolds) key(h *hold) ownerKey { return ownerKey{h.lease.owner, h.lease.name} }

// remove removes a hold that has ended.
func (o ownerHolds) remove(h *hold) {
	if key := o.key(h); o[key] == h {
		delete(o, key)
	}
}

// joinByOwner adds a Lock to the hold that the Owner already has, and returns the hold. It
// returns nil if there is none.
func (l *Locker) joinByOwner(name string) (*hold, error) {
	if l.conf.owner == "" {
		return nil, nil
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.ownerHolds[ownerKey{l.conf.owner, name}]
	if h == nil || h.endCause() != nil {
		return nil, nil
	}
	if err := l.conf.checkJoin(&h.locker.conf); err != nil {
		return nil, err
	}
	h.lockCount++
	return h, nil
}

// merge adds a Lock to the hold that the owner of le got during the request for le, and returns
// the hold. It returns nil if there is none. The store has one lease for both, with the times of
// the later request. It is called with core.mu held.
func (c *core) merge(le *lease) *hold {
	h := c.ownerHolds[ownerKey{le.owner, le.name}]
	// With another token, le belongs to a new hold. The old hold will be reported as lost.
	if h == nil || h.token != le.nextToken-1 {
		return nil
	}
	existing := h.lease
	existing.granted, existing.ttl = le.granted, le.ttl
	existing.extend(le.granted.Grant().Start)
	le.mergedInto = existing
	h.lockCount++
	c.schedule(existing)
	return h
}

// hasOwnerHold reports whether a living hold of that owner relies on its lease.
func (c *core) hasOwnerHold(owner, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ownerHolds[ownerKey{owner, name}] != nil
}

// confirmOwnerHold renews at once the lease that an owner has, after a request of the same owner
// has failed. Both requests had one lease in the store: if the driver has removed what the failed
// one got, the lease is gone, and its holder has to learn that before its next renewal is due.
func (c *core) confirmOwnerHold(owner, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.ownerHolds[ownerKey{owner, name}]
	if h == nil || h.lease.heapIndex < 0 {
		return
	}
	h.lease.renewAt = driver.Now()
	c.schedule(h.lease)
}

// countStoreWaiter counts an acquisition that waits in the store, outside the local queue. The
// returned function undoes that.
func (c *core) countStoreWaiter(name string) func() {
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.storeWaiters[name] += n; c.storeWaiters[name] == 0 {
			delete(c.storeWaiters, name)
		}
	}
	add(1)
	return func() { add(-1) }
}
