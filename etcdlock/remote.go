package etcdlock

import (
	"context"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Lease returns the lease with the given id, that of its request, on a lock. It sends no request. A
// lease that another driver has acquired can be released, but not renewed and not labelled, because
// it belongs to the session of that driver: these calls return [errors.ErrUnsupported].
func (d *Driver) Lease(name, id string, _ time.Duration) driver.Lease {
	if l := d.leases.find(name, func(l *lease) bool { return l.info.Owner == id }); l != nil {
		return &handle{lease: l}
	}
	return driverkit.NewRemoteLease(id, func(ctx context.Context) error { return explain(d.releaseByID(ctx, name, id)) })
}

// releaseByID ends the hold with an id. It finds the key, and ends that key in one transaction.
func (d *Driver) releaseByID(ctx context.Context, name, id string) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	now, err := d.getKeys(ctx, name)
	if err != nil {
		return err
	}
	holders, _ := parseQueue(name, now.Kvs).split()
	for _, e := range holders {
		if e.info.Owner != id || e.info.Format == 0 || e.etcdLease == 0 || e.isKept() {
			continue
		}
		wasHeld, err := d.endHold(ctx, isHeldIn(e.key, e.revision, e.etcdLease), e.key, e.info.encode(true), e.info.MinHold)
		if wasHeld || err != nil {
			return err
		}
	}
	return driver.ErrLost
}
