package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
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
// of a library, or under a prefix. List scans the servers step by step, twice: first the strings
// whose names begin with the prefix, of which it reads the beginnings, then the keys of snib. A
// lock that is created, deleted or moved between two steps may be missed or shown twice.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	stopped := false
	list := func(keys []string) (bool, error) {
		more, err := d.yieldLocks(ctx, prefix, keys, yield)
		stopped = stopped || !more
		return more, err
	}
	n := d.conf.namespace
	pattern := rediskit.EscapeGlob(string(n)+prefix) + "*"
	err := d.scan(ctx, pattern, "string", func(keys []string) (bool, error) {
		own, err := d.ownKeys(ctx, keys)
		if err != nil {
			return false, err
		}
		return list(own)
	})
	if err != nil || stopped {
		return err
	}
	return d.scan(ctx, rediskit.EscapeGlob(string(n))+"snib.[lqr]:*"+pattern, "", list)
}

// ownKeys returns those keys of strings that have a hold of snib as their value. The keys of snib
// are found by their names.
func (d *Driver) ownKeys(ctx context.Context, keys []string) (own []string, err error) {
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, d.conf.namespace.own("")) })
	err = d.readKeys(ctx, keys, false, len(grantHeads[1]), func(key string, s snapshot) {
		if isGrant(string(s.Value)) {
			own = append(own, key)
		}
	})
	return own, err
}

// readKeys calls found with each key, its type, and the bytes 0 to upTo of its value. It skips keys
// that expire if endless is set, and what can't be described in JSON: snib has not written that,
// and neither has another library of locks.
func (d *Driver) readKeys(ctx context.Context, keys []string, endless bool, upTo int,
	found func(key string, s snapshot)) error {
	for batch := range d.batches(keys) {
		args := []string{rediskit.Flag(endless), strconv.Itoa(upTo)}
		r := d.eval(ctx, Call{Script: valuesScript, Args: args, Keys: batch})[0]
		if r.Err != nil {
			return r.Err
		}
		if len(r.Lines) != len(batch) {
			return badAnswerf("the script gave %d answers for %d keys", len(r.Lines), len(batch))
		}
		for i, line := range r.Lines {
			var s snapshot
			if json.Unmarshal([]byte(line), &s) == nil {
				found(batch[i], s)
			}
		}
	}
	return nil
}

// yieldLocks yields the locks that the given keys belong to. A lock has several keys, and is
// yielded with that of its holders, or with its queue if there are none.
func (d *Driver) yieldLocks(ctx context.Context, prefix string, keys []string,
	yield func(driver.Status) bool) (more bool, err error) {
	n := d.conf.namespace
	found, names := make(map[string]bool), make(map[string]bool) // names after the namespace, as in keys
	for _, key := range keys {
		if name, ok := n.nameIn(key); ok && strings.HasPrefix(name, prefix) {
			found[key], names[string(n)+name] = true, true
		}
	}
	for batch := range d.batches(slices.Sorted(maps.Keys(names))) {
		for i := range batch {
			batch[i] = batch[i][len(n):]
		}
		all, err := d.readStatuses(ctx, batch)
		if err != nil {
			return false, err
		}
		for _, s := range all {
			if found[s.mainKey(n)] && len(s.Holders)+len(s.Waiters) > 0 && !yield(s.Status) {
				return false, nil
			}
		}
	}
	return true, nil
}

// mainKey returns the key with which List yields the lock.
func (s lockStatus) mainKey(n namespace) string {
	keys := n.keysOf(s.Name)
	_, exclusive := parseGrant(string(s.Value))
	switch {
	case exclusive:
		return keys[0]
	case len(s.Grants) > 0:
		return keys[1]
	}
	return keys[2]
}

// batches splits keys into batches of at most maxBatch keys of one slot. The keys of a slot
// need not be adjacent.
func (d *Driver) batches(keys []string) func(yield func([]string) bool) {
	slots := make(map[uint16][]string)
	for _, key := range keys {
		slot := d.slot(key)
		slots[slot] = append(slots[slot], key)
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

// scan calls page for the keys that match a pattern, and have the type if it is not "", step by
// step on each master, until page returns false or an error.
func (d *Driver) scan(ctx context.Context, pattern, keyType string,
	page func(keys []string) (more bool, err error)) error {
	if d.life.Over() {
		return driver.ErrClosed
	}
	masters, err := d.conn.Masters(ctx)
	if err == nil && !d.conn.IsCluster() { // a replica that has no key would pass for a store without locks
		err = d.readKeys(ctx, []string{d.sender.metaKey(0)}, false, 0, func(string, snapshot) {})
	}
	if err != nil {
		return asUnavailable(err)
	}
	for _, m := range masters {
		for cursor := "0"; ; {
			command := []string{"SCAN", cursor, "MATCH", pattern, "COUNT", strconv.Itoa(scanCount)}
			if keyType != "" {
				command = append(command, "TYPE", keyType)
			}
			reply, err := m.Do(ctx, command...)
			if err == nil && len(reply) == 0 {
				err = badAnswerf("SCAN answered nothing")
			}
			if err != nil {
				return asUnavailable(err)
			}
			if more, err := page(reply[1:]); err != nil || !more {
				return err
			}
			cursor = reply[0]
			if cursor == "0" {
				break
			}
		}
		if d.conn.IsCluster() { // one that was demoted meanwhile may lack some
			is, err := isMaster(ctx, m)
			if err == nil && !is {
				err = fmt.Errorf("%w: a master of the Cluster has become a replica", driver.ErrUnavailable)
			}
			if err != nil {
				return asUnavailable(err)
			}
		}
	}
	return nil
}
