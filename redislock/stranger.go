package redislock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/redislock/redisadmin"
	"github.com/sniblock/snib/redislock/rediskit"
)

// Foreign calls yield for each lock of another lock library whose key begins with prefix, until
// yield returns false. The same keys count as locks as in Strangers, and those that expire are
// shown, too. The names of locks are the keys. The Status is the one that the driver's Status
// returns, without waiters, and without an id if that is longer than 4,096 bytes.
//
// Foreign writes nothing, and costs as much as Strangers. A key that is created, deleted or moved
// meanwhile may be missed or shown twice.
func (a Admin) Foreign(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	return a.d.scanForeign(ctx, prefix, false, func(f foreignKey) bool {
		holds, shared := f.foreignHolds(f.key)
		name := strings.TrimPrefix(f.key, string(a.d.conf.namespace))
		return yield(driver.Status{Name: name, Holders: holds, Shared: shared})
	})
}

// Strangers calls yield for each abandoned key of another lock library that begins with prefix,
// until yield returns false: each hash of Redisson without an end, and each string of SET NX
// clients in the formats of redis-py, redsync, bsm/redislock, node-redlock, redlock-rb, aioredlock,
// madelson's DistributedLock, pottery, ShedLock and Spring.
//
// A string counts as a lock if its value has the format of one of those libraries and its key
// confirms it: the key begins with the library's prefix or contains the word lock, mutex or
// semaphore. With a prefix that is not empty, each string and each hash counts, whatever it
// contains: SETNX of a constant leaves such locks. Keys that expire are not shown, and neither are
// strings whose value is a time that is not over, and in the next 24 hours: clients of SETNX and
// GETSET write the end of a lock so.
//
// Strangers writes nothing. It scans the servers step by step, and takes memory for one step. It
// reads each key that begins with prefix.
func (a Admin) Strangers(ctx context.Context, prefix string, yield func(redisadmin.Stranger) bool) error {
	return a.d.scanForeign(ctx, prefix, true, func(f foreignKey) bool {
		s := f.stranger(time.Now())
		if s == nil {
			return true
		}
		s.Key = strings.TrimPrefix(s.Key, string(a.d.conf.namespace))
		return yield(*s)
	})
}

// A foreignKey is a key that is taken for a lock of another library.
type foreignKey struct {
	key string
	snapshot
	known bool // it has the format of a library
}

// scanForeign calls yield for the foreign keys whose names begin with prefix, step by step on each
// master, until it returns false. It skips keys that expire if endless is set.
func (d *Driver) scanForeign(ctx context.Context, prefix string, endless bool, yield func(foreignKey) bool) error {
	return d.scan(ctx, rediskit.EscapeGlob(string(d.conf.namespace)+prefix)+"*", "",
		func(keys []string) (bool, error) {
			keys = slices.DeleteFunc(keys, func(key string) bool {
				return strings.HasPrefix(key, d.conf.namespace.own("")) || isRedissonDetail(key)
			})
			found, err := d.readForeign(ctx, keys, endless, prefix != "")
			if err != nil {
				return false, err
			}
			return !slices.ContainsFunc(found, func(f foreignKey) bool { return !yield(f) }), nil
		})
}

// readForeign returns those of the keys that are taken for locks of other libraries. AssumeLocks
// means that the caller has chosen a prefix, and so believes that the keys are locks: then it
// returns all strings and hashes that are no locks of snib.
func (d *Driver) readForeign(ctx context.Context, keys []string, endless,
	assumeLocks bool) (found []foreignKey, err error) {
	const most = 4096 // bytes of a value that is shown
	err = d.readKeys(ctx, keys, endless, most, func(key string, s snapshot) {
		if isGrant(string(s.Value)) || strings.HasPrefix(string(s.Value), "snib:") {
			return
		}
		if len(s.Value) > most {
			s.Value = ""
		}
		f := foreignKey{key: key, snapshot: s}
		switch f.Type {
		case "string":
			f.known = libraryOf(f.key, string(f.Value), assumeLocks) != ""
		case "hash":
			f.known = redissonHash(f.Fields) != ""
		default:
			return
		}
		if f.known || assumeLocks {
			found = append(found, f)
		}
	})
	return found, err
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
	if end, ok := endIn(value); ok && end.Add(clockError).After(now) && end.Before(now.Add(maxGetSet)) {
		return nil
	}
	s.Library = describeValue(f.key, value)
	return s
}

// maxGetSet is how far the end that a client of SETNX and GETSET writes may lie ahead. A number
// that would be a later time is something else.
const maxGetSet = 24 * time.Hour

// clockError is how long that end must be over: the client's clock may differ from ours.
const clockError = 10 * time.Second

// isRedissonDetail reports whether Redisson keeps something about a lock in the key, which is a
// string, and no lock.
func isRedissonDetail(key string) bool {
	return strings.HasPrefix(key, "redisson_lock_token:") || strings.HasPrefix(key, "redisson_unlock_latch:") ||
		redissonReader().MatchString(key)
}

// redissonReader matches the keys that have the ends of the holds of readers.
var redissonReader = pattern(`:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}:\d+:rwlock_timeout:\d+$`)
