package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// Forget ends the grace period after a restart or a failover on all servers: they are assumed
// to know all leases. It is for an operator who knows that nobody holds a lock that the servers
// forgot; otherwise two processes may hold it. In a Cluster it writes to each of the 16,384
// slots.
func (d *Driver) Forget(ctx context.Context) error {
	if d.ctx.Err() != nil {
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
			calls[i] = Call{Script: d.forgetScript, Keys: []string{d.sender.metaKey(slot), d.sender.longLeasesKey(slot)}}
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

// Grace returns how long the store would grant nothing if it restarted now and kept its memory.
// It is 0 without failover-grace. In a Cluster it is the minimum: a slot with long leases may
// take longer.
func (d *Driver) Grace(ctx context.Context) (time.Duration, error) {
	switch {
	case d.ctx.Err() != nil:
		return 0, driver.ErrClosed
	case !d.conf.grace:
		return 0, nil
	case d.conn.IsCluster():
		return min(d.conf.floor, d.conf.maxTTL), nil
	}
	masters, err := d.conn.Masters(ctx)
	if err != nil {
		return 0, err
	}
	longest := d.conf.floor
	for _, m := range masters {
		now, err := clockOf(ctx, m)
		if err != nil {
			return 0, err
		}
		reply, err := m.Do(ctx, "ZRANGEBYSCORE", d.sender.longLeasesKey(0), strconv.FormatInt(now.UnixMicro(), 10), "+inf")
		if err != nil {
			return 0, fmt.Errorf("ZRANGEBYSCORE: %w", err)
		}
		leases, _ := reply.([]any)
		for _, lease := range leases {
			text, _ := lease.(string)
			ttl, _, _ := strings.Cut(text, " ")
			if ms, err := strconv.ParseInt(ttl, 10, 64); err == nil && ms < maxTTL.Milliseconds() {
				longest = max(longest, time.Duration(ms)*time.Millisecond)
			}
		}
	}
	return min(longest, d.conf.maxTTL), nil
}
