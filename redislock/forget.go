package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sniblock/snib/driver"
)

// Forget implements [redisadmin.Admin].
func (d admin) Forget(ctx context.Context) error {
	if d.life.Over() {
		return driver.ErrClosed
	}
	return d.evalAllSlots(ctx, forgetScript, func(Reply) error { return nil })
}

// evalAllSlots runs a script in each slot of a Cluster, or once on a server that is alone, and
// calls fn with each reply.
func (d admin) evalAllSlots(ctx context.Context, script *Script, fn func(Reply) error) error {
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
			calls[i] = Call{Script: script, Keys: []string{d.sender.metaKey(slot), d.sender.longLeasesKey(slot)}}
		}
		for i, r := range d.eval(ctx, calls...) {
			err := r.Err
			if err == nil {
				err = fn(r)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", calls[i].Keys[0], err))
			}
		}
		if len(failed) > 0 {
			return errors.Join(failed...)
		}
	}
	return nil
}

// Grace implements [redisadmin.Admin].
func (d admin) Grace(ctx context.Context) (time.Duration, error) {
	switch {
	case d.life.Over():
		return 0, driver.ErrClosed
	case !d.conf.grace:
		return 0, nil
	}
	longest := d.conf.floor
	err := d.evalAllSlots(ctx, longestScript, func(r Reply) error {
		if len(r.Lines) != 1 {
			return fmt.Errorf("%d lines answer a request for the longest lease, want one", len(r.Lines))
		}
		ms, err := strconv.ParseInt(r.Lines[0], 10, 64)
		if err == nil && ms < maxTTL.Milliseconds() {
			longest = max(longest, time.Duration(ms)*time.Millisecond)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return min(longest, d.conf.maxTTL), nil
}
