package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A remoteLease is a lease that another driver may have acquired. It belongs to that driver's
// session, so it can be released from here, and not renewed. It implements [driver.Lease].
type remoteLease struct {
	d        *Driver
	name, id string

	releaseSem chan struct{} // of capacity 1: held during a release; guards what follows
	released   bool
	unanswered bool // a release was not answered
}

// errRemote means that only the session of a lease can do something.
var errRemote = fmt.Errorf("%w: the lease belongs to the session of another process", errors.ErrUnsupported)

// Lease returns the lease with the given id, that of its request, on a lock. It sends no request. A
// lease that another driver has acquired can be released, but not renewed and not labelled, because
// it belongs to the session of that driver: these calls return [errors.ErrUnsupported].
func (d *Driver) Lease(name, id string, _ time.Duration) driver.Lease {
	d.leasesMu.Lock()
	defer d.leasesMu.Unlock()
	if l := d.leases[leaseKey{name, id}]; l != nil {
		return &handle{lease: l}
	}
	return &remoteLease{d: d, name: name, id: id, releaseSem: make(chan struct{}, 1)}
}

// ID returns the name of the grant.
func (r *remoteLease) ID() string { return r.id }

// Grant implements [driver.Lease]. Nothing is known of the grant.
func (r *remoteLease) Grant() driver.Grant { return driver.Grant{} }

// SetLabel implements [driver.Lease].
func (r *remoteLease) SetLabel(context.Context, string) error { return errRemote }

// Release implements [driver.Lease]. It finds the node of the lease, whose name is never used again,
// and ends it in one request.
func (r *remoteLease) Release(ctx context.Context) error {
	if err := r.d.conf.checkName(r.name); err != nil {
		return err
	}
	select {
	case r.releaseSem <- struct{}{}:
		defer func() { <-r.releaseSem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.released {
		return nil
	}
	s, done, ctx, err := r.d.inspector(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = r.release(ctx, s)
	switch {
	case err == nil, errors.Is(err, driver.ErrLost) && r.unanswered:
		r.released = true
		return nil
	case !isAnswer(err) || ctx.Err() != nil:
		r.unanswered = true
	}
	return r.d.explain(err, r.d.conf.folder(r.name))
}

// release ends the lease.
func (r *remoteLease) release(ctx context.Context, s *session) error {
	st, nodes, err := s.status(ctx, r.name)
	if err != nil {
		return err
	}
	for i, h := range st.Holders {
		if h.Owner != printable(r.id) || nodes[i].id == "" || nodes[i].kept {
			continue
		}
		path, data := child(r.d.conf.folder(r.name), nodes[i].node), decode(nodes[i].snap.data)
		left, err := s.minHoldLeft(ctx, path, nodes[i].snap)
		switch {
		case err != nil:
			return err
		case left > 0:
			return s.keepForMinHold(ctx, path, data, left)
		}
		return s.deleteHold(ctx, path)
	}
	return driver.ErrLost
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
