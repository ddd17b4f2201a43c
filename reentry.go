package snib

import (
	"context"
	"fmt"
)

// heldKey is the context key of the holds that a context carries.
type heldKey struct{}

// A carriedHold is an element of the list of holds that a context carries, innermost first.
type carriedHold struct {
	hold *hold
	next *carriedHold
}

// carry returns a context that carries h in addition to the holds of ctx.
func carry(ctx context.Context, h *hold) context.Context {
	outer, _ := ctx.Value(heldKey{}).(*carriedHold)
	return context.WithValue(ctx, heldKey{}, &carriedHold{hold: h, next: outer})
}

// findCarried returns the living hold on name that ctx carries, or nil.
func (c *core) findCarried(ctx context.Context, name string) *hold {
	list, _ := ctx.Value(heldKey{}).(*carriedHold)
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

// joinByContext adds a Lock to h, a hold that ctx carries.
func (l *Locker) joinByContext(ctx context.Context, h *hold) (*Lock, error) {
	if !l.conf.reentrant {
		return nil, fmt.Errorf("%w: it would wait for itself; see Reentrant", ErrNested)
	}
	if err := l.conf.checkJoin(&h.locker.conf); err != nil {
		return nil, err
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.endCause(); err != nil {
		return nil, err // it ended just now
	}
	h.lockCount++
	return l.newLock(ctx, h), nil
}

// checkJoin returns why an acquisition with options c can't join a hold
// with options existing, or nil.
func (c *config) checkJoin(existing *config) error {
	switch {
	case existing.slots != c.slots:
		return fmt.Errorf("%w: held with %d slots and asked for with %d", ErrKind, existing.slots, c.slots)
	case existing.shared && !c.shared:
		return fmt.Errorf("%w: as shared, so it would wait for itself to hold it alone", ErrNested)
	}
	return nil
}
