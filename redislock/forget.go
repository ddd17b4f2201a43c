package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sniblock/snib/driver"
)

// Forget implements [redisadmin.Admin].
func (d admin) Forget(ctx context.Context) error {
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
