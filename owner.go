package snib

// owned are the living holds whose owner was named by the caller. All acquisitions of one owner share a lease in the store, so in
// the process they share a hold.
type owned map[ownedName]*hold

type ownedName struct{ owner, name string }

func (o owned) of(h *hold) ownedName { return ownedName{h.lease.owner, h.lease.name} }

// remove forgets a hold that has ended.
func (o owned) remove(h *hold) {
	if at := o.of(h); o[at] == h {
		delete(o, at)
	}
}

// rejoin adds a lock to the hold that the named owner has already, or returns nil.
func (l *Locker) rejoin(name string) (*hold, error) {
	if l.conf.owner == "" {
		return nil, nil
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.owned[ownedName{l.conf.owner, name}]
	if h == nil || h.over() != nil {
		return nil, nil
	}
	if err := l.conf.joins(&h.locker.conf); err != nil {
		return nil, err
	}
	h.count++
	return h, nil
}

// merge adds a lock to the hold that the owner of le got while le was asked for, or returns nil. The store has one lease for both,
// with the times of the later request. It is called with core.mu held.
func (c *core) merge(le *lease) *hold {
	h := c.owned[ownedName{le.owner, le.name}]
	if h == nil || h.token != le.next-1 { // with another token it is another hold, and the old one will learn of its loss
		return nil
	}
	had := h.lease
	had.granted, had.ttl = le.granted, le.ttl
	had.extend(le.granted.Grant().Start)
	le.merged = had
	h.count++
	c.schedule(had)
	return h
}

// isOwned reports whether a living hold of that owner relies on its lease.
func (c *core) isOwned(owner, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owned[ownedName{owner, name}] != nil
}

// stepOutside notes that somebody waits for a name in the store, beside the queue of this process; the result takes it back.
func (c *core) stepOutside(name string) func() {
	add := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.outside[name] += n; c.outside[name] == 0 {
			delete(c.outside, name)
		}
	}
	add(1)
	return func() { add(-1) }
}
