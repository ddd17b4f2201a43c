package snib

// Stage 1, resolve: an acquisition whose context carries a hold on the name joins it.

import (
	"context"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// resolve checks the request, and returns the hold that it joins. If hold and error are nil, there
// is no such hold, and the acquisition goes on to stage 2.
func (l *Locker) resolve(ctx context.Context, name string) (*hold, holdOrigin, error) {
	if ctx.Err() != nil {
		return nil, holdOrigin{}, context.Cause(ctx)
	}
	if err := driver.CheckName(name); err != nil {
		return nil, holdOrigin{}, err
	}
	if h := l.core.findCarried(ctx, name); h != nil {
		if err := l.joinByContext(h); err != nil {
			return nil, holdOrigin{local: true}, err
		}
		return h, holdOrigin{local: true, joined: true}, nil
	}
	return nil, holdOrigin{}, nil
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

// joinByContext adds a Lock to h, a hold that the context of the acquisition carries.
func (l *Locker) joinByContext(h *hold) error {
	if !l.conf.reentrant {
		return fmt.Errorf("%w: it would wait for itself; see Reentrant", ErrNested)
	}
	if err := l.conf.checkJoin(&h.locker.conf); err != nil {
		return err
	}
	c := l.core
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.endCause(); err != nil {
		return err // it ended just now
	}
	h.lockCount++
	return nil
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
