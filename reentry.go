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
	if !l.conf.reentrant {
		return nil, fmt.Errorf("%w: it would wait for itself; see Reentrant", ErrNested)
	}
	if err := l.conf.joins(&h.locker.conf); err != nil {
		return nil, err
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.over(); err != nil {
		return nil, err // it ended just now
	}
	h.count++
	return l.newLock(ctx, h), nil
}

// joins reports why a lock that is asked for under c can't be one more of a hold under had.
func (c *config) joins(had *config) error {
	switch {
	case had.slots != c.slots:
		return fmt.Errorf("%w: held with %d slots and asked for with %d", ErrKind, had.slots, c.slots)
	case had.shared && !c.shared:
		return fmt.Errorf("%w: as shared, so it would wait for itself to hold it alone", ErrNested)
	}
	return nil
}
