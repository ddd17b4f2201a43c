package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sniblock/snib/driver"
)

// Forget ends the grace period after a restart or a failover on all servers: they are assumed to
// know all leases. It is for an operator who knows that nobody holds a lock that the servers
// forgot; otherwise two processes may hold it. In a Cluster it writes to each of the 16,384 slots.
func (a Admin) Forget(ctx context.Context) error {
	d := a.d
	if d.life.Over() {
		return driver.ErrClosed
	}
	all := []uint16{0}
	if d.conn.IsCluster() {
		for slot := uint16(1); slot < slots; slot++ {
			all = append(all, slot)
		}
	}
	var failed []error
	for batch := range slices.Chunk(all, maxBatch) {
		calls := make([]Call, len(batch))
		for i, slot := range batch {
			calls[i] = Call{Script: forgetScript, Keys: []string{d.sender.metaKey(slot), d.sender.longLeasesKey(slot)}}
		}
		for i, r := range d.eval(ctx, calls...) {
			if r.Err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", calls[i].Keys[0], r.Err))
			}
		}
		if len(failed) > 0 {
			return errors.Join(failed...)
		}
	}
	return nil
}
