package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Lease returns the lease with the given id, that of its request, on a lock. It sends no request. A
// lease that another driver has acquired can be released, but not renewed and not labelled, because
// it belongs to the session of that driver: these calls return [errors.ErrUnsupported].
func (d *Driver) Lease(name, id string, _ time.Duration) driver.Lease {
	if l := d.findLease(name, func(l *lease) bool { return l.req.ID == id }); l != nil {
		return &handle{lease: l}
	}
	return driverkit.NewRemoteLease(id, func(ctx context.Context) error { return d.releaseByID(ctx, name, id) })
}

// releaseByID releases the hold with an id.
func (d *Driver) releaseByID(ctx context.Context, name, id string) error {
	return d.endByID(ctx, name, id, func(ctx context.Context, e entry, held []clientv3.Cmp) (bool, error) {
		if e.info.Format == 0 || e.isKept() {
			return false, nil
		}
		return d.endHold(ctx, held, e.key, e.info.encode(true), e.info.MinHold)
	})
}

// endByID finds the hold with an id, and ends it with a call of end: a transaction that compares
// whether the key is still held, and reports whether it was.
func (d *Driver) endByID(ctx context.Context, name, id string,
	end func(context.Context, entry, []clientv3.Cmp) (wasHeld bool, err error)) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	now, err := d.getKeys(ctx, name)
	if err != nil {
		return explain(err)
	}
	holders, _ := parseQueue(name, now.Kvs).split()
	for _, e := range holders {
		if e.info.ID != id || e.etcdLease == 0 {
			continue
		}
		if wasHeld, err := end(ctx, e, isHeldIn(e.key, e.revision, e.etcdLease)); wasHeld || err != nil {
			return explain(err)
		}
	}
	return driver.ErrLost
}
