package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/rediskit"
)

// scanCount is how many keys a server examines in one step of a scan. It serves no other client
// during a step.
const scanCount = 500

// List implements [driver.Inspector]. It finds snib's locks. Foreign keys can't be told from
// other strings; [Driver.Status] shows them, and [Driver.Admin] lists those that are in the format
// of a library, or under a prefix. List scans the servers step by step, including all other keys
// that they keep, in the order of their hash tables. A lock whose record or queue is created,
// deleted or moved between two steps may be missed or shown twice.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return d.scan(ctx, "snib.[rq]:*"+rediskit.EscapeGlob(prefix)+"*", func(_ Node, keys []string) (bool, error) {
		return d.yieldLocks(ctx, prefix, keys, yield)
	})
}

// yieldLocks yields the locks that the given keys, of records and queues, belong to.
func (d *Driver) yieldLocks(ctx context.Context, prefix string, keys []string, yield func(driver.Status) bool) (more bool, err error) {
	recorded := make(map[string]bool) // whether the name is known by its record
	for _, key := range keys {
		if name, ok := nameIn(key); ok && strings.HasPrefix(name, prefix) {
			recorded[name] = recorded[name] || strings.HasPrefix(key, "snib.r:")
		}
	}
	names := make([]string, 0, len(recorded))
	for name := range recorded {
		names = append(names, name)
	}
	slices.Sort(names)
	for names := range d.batches(names) {
		all, err := d.readStatuses(ctx, names)
		if err != nil {
			return false, err
		}
		for _, s := range all {
			if s.Recorded && !recorded[s.Name] { // it is listed with its record
				continue
			}
			if len(s.Holders)+len(s.Waiters) > 0 && !yield(s.Status) {
				return false, nil
			}
		}
	}
	return true, nil
}

// batches splits keys into batches of at most maxBatch keys of one slot. The keys of a slot
// need not be adjacent.
func (d *Driver) batches(keys []string) func(yield func([]string) bool) {
	slots := make(map[uint16][]string)
	for _, key := range keys {
		slots[d.slot(key)] = append(slots[d.slot(key)], key)
	}
	return func(yield func([]string) bool) {
		for _, all := range slots {
			for batch := range slices.Chunk(all, maxBatch) {
				if !yield(batch) {
					return
				}
			}
		}
	}
}

// scan calls page for the keys that match a pattern, step by step on each master, until page
// returns false or an error.
func (d *Driver) scan(ctx context.Context, pattern string, page func(m Node, keys []string) (more bool, err error)) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	masters, err := d.conn.Masters(ctx)
	if err != nil {
		return err
	}
	for _, m := range masters {
		for cursor := "0"; ; {
			reply, err := m.Do(ctx, "SCAN", cursor, "MATCH", pattern, "COUNT", strconv.Itoa(scanCount))
			if err != nil {
				return err
			}
			var keys []string
			if cursor, keys, err = parseScan(reply); err != nil {
				return err
			}
			if more, err := page(m, keys); err != nil || !more {
				return err
			}
			if cursor == "0" {
				break
			}
		}
	}
	return nil
}

func parseScan(reply any) (cursor string, keys []string, err error) {
	if r, ok := reply.([]any); ok && len(r) == 2 {
		cursor, isText := r[0].(string)
		all, isList := r[1].([]any)
		for _, key := range all {
			text, _ := key.(string)
			keys = append(keys, text)
		}
		if isText && isList {
			return cursor, keys, nil
		}
	}
	return "", nil, fmt.Errorf("SCAN answered %v", reply)
}
