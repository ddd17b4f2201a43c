package redislock

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redislock/rediskit"
)

// Foreign implements [redisadmin.Admin].
func (d admin) Foreign(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return d.scanForeign(ctx, prefix, false, func(_ Node, found []foreignKey, _ []string) (bool, error) {
		for _, f := range found {
			holds, shared := f.foreignHolds(f.key)
			if !yield(driver.Status{Name: strings.TrimPrefix(f.key, string(d.conf.namespace)), Holders: holds, Shared: shared}) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Strangers implements [redisadmin.Admin].
func (d admin) Strangers(ctx context.Context, prefix string, yield func(redisadmin.Stranger) bool) error {
	return d.scanForeign(ctx, prefix, true, func(m Node, found []foreignKey, queues []string) (bool, error) {
		var all []redisadmin.Stranger
		for _, f := range found {
			if s := f.stranger(time.Now()); s != nil {
				s.Key = strings.TrimPrefix(s.Key, string(d.conf.namespace))
				all = append(all, *s)
			}
		}
		for _, key := range queues {
			s, err := blockedQueue(ctx, m, key)
			if err != nil {
				return false, err
			}
			if s != nil {
				all = append(all, *s)
			}
		}
		for _, s := range all {
			if !yield(s) {
				return false, nil
			}
		}
		return true, nil
	})
}

// A foreignKey is a key that is taken for a lock of another library.
type foreignKey struct {
	key string
	snapshot
	known bool // it has the format of a library
}

// scanForeign calls page for the foreign keys, and for the queues of Redisson, whose names begin
// with prefix, step by step on each master, until page returns false or an error. It skips keys
// that expire if endless is set.
func (d admin) scanForeign(ctx context.Context, prefix string, endless bool,
	page func(m Node, found []foreignKey, queues []string) (more bool, err error)) error {
	return d.scan(ctx, rediskit.EscapeGlob(string(d.conf.namespace)+prefix)+"*", "",
		func(m Node, keys []string) (bool, error) {
			var queues, others []string
			for _, key := range keys {
				switch {
				case strings.HasPrefix(key, redissonQueue):
					queues = append(queues, key)
				case !strings.HasPrefix(key, d.conf.namespace.own("")) && !isRedissonDetail(key):
					others = append(others, key)
				}
			}
			found, err := d.readForeign(ctx, others, endless, prefix != "")
			if err != nil {
				return false, err
			}
			return page(m, found, queues)
		})
}

// readForeign returns those of the keys that are taken for locks of other libraries. AssumeLocks
// means that the caller has chosen a prefix, and so believes that the keys are locks: then it
// returns all strings and hashes that are no locks of snib.
func (d admin) readForeign(ctx context.Context, keys []string, endless,
	assumeLocks bool) (found []foreignKey, err error) {
	for batch := range d.batches(keys) {
		r := d.eval(ctx, Call{Script: foreignScript, Args: []string{rediskit.Flag(endless)}, Keys: slices.Clone(batch)})[0]
		if r.Err != nil {
			return nil, r.Err
		}
		if len(r.Lines) != len(batch) {
			return nil, fmt.Errorf("the script gave %d answers for %d keys", len(r.Lines), len(batch))
		}
		for i, line := range r.Lines {
			f := foreignKey{key: batch[i]}
			if err := json.Unmarshal([]byte(line), &f.snapshot); err != nil {
				continue // what the script can't describe is not of the format of a library
			}
			if _, own := parseGrant(string(f.Value)); own || strings.HasPrefix(string(f.Value), "snib:") {
				continue
			}
			switch f.Type {
			case "string":
				f.known = libraryOf(f.key, string(f.Value), assumeLocks) != ""
			case "hash":
				f.known = redissonHash(f.Fields) != ""
			default:
				continue
			}
			if f.known || assumeLocks {
				found = append(found, f)
			}
		}
	}
	return found, nil
}

// stranger returns the Stranger that an endless key is, or nil. A client of SETNX and GETSET may be
// alive until the time in its value.
func (f foreignKey) stranger(now time.Time) *redisadmin.Stranger {
	value := string(f.Value)
	s := &redisadmin.Stranger{Key: f.key, Problem: "it has no end", Value: value, Unsure: !f.known}
	if s.Unsure {
		s.Problem += ", and may be no lock"
	}
	if f.Type == "hash" {
		s.Library = redissonHash(f.Fields)
		return s
	}
	if end, ok := endIn(value); ok && end.Add(overdueMin).After(now) && end.Before(now.Add(maxGetSet)) {
		return nil
	}
	s.Library = describeValue(f.key, value)
	return s
}

// maxGetSet is how far the end that a client of SETNX and GETSET writes may lie ahead. A number
// that would be a later time is something else.
const maxGetSet = 24 * time.Hour

// isRedissonDetail reports whether Redisson keeps something about a lock in the key, and no lock.
func isRedissonDetail(key string) bool {
	return strings.HasPrefix(key, redissonTimeout) || strings.HasPrefix(key, "redisson_lock_token:") ||
		strings.HasPrefix(key, "redisson_unlock_latch:") || redissonReader().MatchString(key)
}

// redissonReader matches the keys that have the ends of the holds of readers.
var redissonReader = pattern(`:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}:\d+:rwlock_timeout:\d+$`)

// Redisson keeps the queue of a fair lock, and the time until which each waiter waits, in
// milliseconds of the waiter's clock, under these prefixes.
const (
	redissonQueue   = "redisson_lock_queue:"
	redissonTimeout = "redisson_lock_timeout:"
)

// overdueMin is how long a waiter's time must be over: its clock may differ from the server's.
const overdueMin = 10 * time.Second

// blockedQueue returns a Stranger if the head of a Redisson queue is a waiter that is gone.
// Redisson clients remove such a waiter when they next try to lock, so one remains for long
// only if no client tries, or if the clients' clocks differ.
func blockedQueue(ctx context.Context, m Node, key string) (*redisadmin.Stranger, error) {
	head, err := m.Do(ctx, "LINDEX", key, "0")
	if err != nil || len(head) == 0 {
		return nil, err
	}
	score, err := m.Do(ctx, "ZSCORE", redissonTimeout+strings.TrimPrefix(key, redissonQueue), head[0])
	if err != nil {
		return nil, err
	}
	until, err := strconv.ParseFloat(strings.Join(score, ""), 64)
	if err != nil {
		return &redisadmin.Stranger{Key: key, Library: "Redisson, a fair lock", //nolint:nilerr // the error is the problem
			Problem: "the first in the queue has no time until which it waits"}, nil
	}
	now, err := clockOf(ctx, m)
	if err != nil {
		return nil, err
	}
	over := time.Duration((float64(now.UnixMilli()) - until) * float64(time.Millisecond))
	if over < overdueMin {
		return nil, nil //nolint:nilnil // it is not blocked
	}
	return &redisadmin.Stranger{
		Key: key, Library: "Redisson, a fair lock",
		Problem: fmt.Sprintf("the first in the queue was to be gone %v ago", over.Round(time.Second)),
	}, nil
}
