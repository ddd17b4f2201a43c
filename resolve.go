package snib

// Stage 1, resolve: an acquisition whose context carries a hold on the name joins it.

import (
	"context"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// resolve checks the request, and adds a Lock to the living hold on the name that ctx carries. If
// hold and error are nil, there is no such hold, and the acquisition goes on to stage 2.
func (l *Locker) resolve(ctx context.Context, name string) (*hold, holdOrigin, error) {
	if ctx.Err() != nil {
		return nil, holdOrigin{}, context.Cause(ctx)
	}
	if err := driver.CheckName(name); err != nil {
		return nil, holdOrigin{}, err
	}
	list, _ := ctx.Value(heldKey{}).(*carriedHold)
	if list == nil {
		return nil, holdOrigin{}, nil
	}
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	for ; list != nil; list = list.next {
		h := list.hold
		if h.locker.core != l.core || h.lease.name != name || h.endCause() != nil {
			continue
		}
		if err := l.conf.checkJoin(&h.locker.conf); err != nil {
			return nil, holdOrigin{local: true}, err
		}
		h.lockCount++
		return h, holdOrigin{local: true, joined: true}, nil
	}
	return nil, holdOrigin{}, nil
}

// checkJoin returns why an acquisition with options c can't join a hold
// with options existing, or nil.
func (c *config) checkJoin(existing *config) error {
	switch {
	case !c.reentrant:
		return fmt.Errorf("%w: it would wait for itself; see Reentrant", ErrNested)
	case existing.slots != c.slots:
		return fmt.Errorf("%w: held with %d slots and asked for with %d", ErrKind, existing.slots, c.slots)
	case existing.shared && !c.shared:
		return fmt.Errorf("%w: as shared, so it would wait for itself to hold it alone", ErrNested)
	}
	return nil
}
