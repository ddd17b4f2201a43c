package snib

import (
	"context"
	"fmt"
)

// heldKey is the key of the holds that a context carries.
type heldKey struct{}

// carried is a list of holds, the innermost first.
type carried struct {
	hold *hold
	next *carried
}

// carry returns a context that carries h beside what ctx carries.
func carry(ctx context.Context, h *hold) context.Context {
	outer, _ := ctx.Value(heldKey{}).(*carried)
	return context.WithValue(ctx, heldKey{}, &carried{hold: h, next: outer})
}

// carried returns the living hold on name that ctx carries, or nil.
func (c *core) carried(ctx context.Context, name string) *hold {
	list, _ := ctx.Value(heldKey{}).(*carried)
	for ; list != nil; list = list.next {
		h := list.hold
		if h.locker.core != c || h.lease.name != name {
			continue
		}
		c.mu.Lock()
		alive := h.cause == nil
		c.mu.Unlock()
		if alive {
			return h
		}
	}
	return nil
}

// reenter adds a lock to a hold that ctx carries.
func (l *Locker) reenter(ctx context.Context, h *hold) (*Lock, error) {
	had, asked := &h.locker.conf, &l.conf
	switch {
	case !asked.reentrant:
		return nil, fmt.Errorf("%w: it would wait for itself; see Reentrant", ErrNested)
	case had.shared && !asked.shared:
		return nil, fmt.Errorf("%w: as shared, so it would wait for itself to hold it alone", ErrNested)
	case had.slots != asked.slots:
		return nil, fmt.Errorf("%w: held with %d slots and asked for with %d", ErrKind, had.slots, asked.slots)
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.cause != nil {
		return nil, h.cause // it ended just now
	}
	h.count++
	return l.newLock(ctx, h), nil
}
