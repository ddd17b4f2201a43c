package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Lease returns the lease with the given id, that of its request, on a lock. It sends no request. A
// lease that another driver has acquired can be released, but not renewed and not labelled, because
// it belongs to the session of that driver: these calls return [errors.ErrUnsupported].
func (d *Driver) Lease(name, id string, _ time.Duration) driver.Lease {
	d.leasesMu.Lock()
	defer d.leasesMu.Unlock()
	for _, l := range d.leases {
		if l.req.Name == name && l.req.ID == id {
			return &handle{lease: l}
		}
	}
	return driverkit.NewRemoteLease(id, func(ctx context.Context) error { return d.releaseByID(ctx, name, id) })
}

// releaseByID releases the hold with an id.
func (d *Driver) releaseByID(ctx context.Context, name, id string) error {
	return d.endByID(ctx, name, printable(id), func(ctx context.Context, s *session, path string, n heldNode) error {
		if !n.isRecipe() || n.kept {
			return driver.ErrLost
		}
		return s.releaseNode(ctx, path, n.snap)
	})
}

// endByID finds the hold with an id, as Status shows it, and ends it with a call of end. The name
// of its node is never used again, so what is found is still the same when it is ended.
func (d *Driver) endByID(ctx context.Context, name, id string,
	end func(ctx context.Context, s *session, path string, n heldNode) error) error {
	if err := d.conf.checkName(name); err != nil {
		return err
	}
	s, done, ctx, err := d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	folder := d.conf.folder(name)
	st, nodes, err := s.status(ctx, name)
	if err != nil {
		return d.explain(err, folder)
	}
	for i, h := range st.Holders {
		if h.ID != id || id == "" { // those without an id are no locks
			continue
		}
		if err := end(ctx, s, child(folder, nodes[i].node), nodes[i]); !errors.Is(err, driver.ErrLost) {
			return d.explain(err, folder)
		}
	}
	return driver.ErrLost
}

// releaseNode deletes the node of a hold, or keeps it until its MinHold is over.
func (s *session) releaseNode(ctx context.Context, path string, snap snapshot) error {
	left, err := s.minHoldLeft(ctx, path, snap)
	switch {
	case err != nil:
		return err
	case left > 0:
		return s.keepForMinHold(ctx, path, decode(snap.data), left)
	}
	return s.deleteHold(ctx, path)
}

// minHoldLeft returns for how long MinHold still keeps the lock of a node taken, by the leader's
// clock. To read that clock, it writes the node once more, as it is.
func (s *session) minHoldLeft(ctx context.Context, path string, snap snapshot) (time.Duration, error) {
	data := decode(snap.data)
	if data.MinHold <= 0 {
		return 0, nil
	}
	stat, _, err := do(ctx, s, setNode(path, snap.data, snap.stat.Version))
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return 0, driver.ErrLost
	case errors.Is(err, zk.ErrBadVersion):
		return 0, fmt.Errorf("%w: the hold was written meanwhile", driver.ErrUnavailable)
	case err != nil:
		return 0, err
	}
	held := time.Duration(stat.Mtime-snap.stat.Ctime)*time.Millisecond - data.Queued
	return data.MinHold - held, nil
}
