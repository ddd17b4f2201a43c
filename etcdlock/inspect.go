package etcdlock

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// pageSize is how many keys List reads at a time.
const pageSize = 1000

// Status implements [driver.Inspector]. It shows foreign holders and waiters by their keys.
// Times count by the clocks of the two hosts. For a holder that has waited, Held is 0 until its
// first renewal. The remaining time of a hold is known to the second. A key that is no lock is
// shown as a hold without an id.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	if err := d.life.Ready(ctx); err != nil {
		return driver.Status{}, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	now, err := d.getKeys(ctx, name)
	if err != nil {
		return driver.Status{}, explain(err)
	}
	return d.status(ctx, name, parseQueue(name, now.Kvs), ttls{})
}

// ttls are how long etcd leases last if they are not kept alive, by their ids.
type ttls map[int64]time.Duration

// status describes a queue to people.
func (d *Driver) status(ctx context.Context, name string, q queue, ttls ttls) (driver.Status, error) {
	st := driver.Status{Name: name}
	if len(q) > 0 {
		st.Shared, st.Slots = q[0].info.Shared, q[0].info.Slots
	}
	other, err := d.foreignUse(ctx, name, q, ttls)
	if err != nil {
		return driver.Status{}, explain(err)
	}
	if other != nil {
		st.Holders = []driver.Holding{*other}
		return st, nil
	}
	holders, waiters := q.split()
	for _, e := range holders {
		st.Slots = min(st.Slots, e.info.Slots)
		left, err := d.timeLeft(ctx, e.etcdLease, ttls)
		if err != nil {
			return driver.Status{}, explain(err)
		}
		st.Holders = append(st.Holders, driver.Holding{
			ID: e.info.ID, Token: tokenOf(e.revision), Holder: e.holder(), Held: since(e.info.Held), Left: left,
		})
	}
	for _, e := range waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			ID: e.info.ID, Shared: e.info.Shared, Holder: e.info.holder(), Waited: since(e.info.Asked),
		})
	}
	return st, nil
}

// since returns the time since milli, or 0 if milli is 0.
func since(milli int64) time.Duration {
	if milli == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(milli)))
}

// List implements [driver.Inspector]. It shows our locks and those of package concurrency, and
// no other keys. It reads etcd page by page, in the order of the keys.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	if err := d.life.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	seen := map[string]bool{}
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		if from == "" {
			from = "\x00" // a key can't be empty
		}
		got, err := call(ctx, d, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return d.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
		})
		if err != nil {
			return explain(err)
		}
		ttls := ttls{}
		for _, kv := range got.Kvs {
			key := string(kv.Key)
			// A name comes again only among the keys below it.
			maps.DeleteFunc(seen, func(name string, _ bool) bool { return !strings.HasPrefix(key, name+"/") })
			_, known := parseEntry(kv)
			name, _ := splitKey(key)
			if !known || seen[name] || !strings.HasPrefix(name, prefix) || name == "" {
				continue
			}
			seen[name] = true
			now, err := d.getKeys(ctx, name)
			if err != nil {
				return explain(err)
			}
			st, err := d.status(ctx, name, parseQueue(name, now.Kvs), ttls)
			if err != nil {
				return err
			}
			if len(st.Holders)+len(st.Waiters) > 0 && !yield(st) {
				return nil
			}
		}
		if !got.More {
			return nil
		}
		from = string(got.Kvs[len(got.Kvs)-1].Key) + "\x00"
	}
}

// Break implements [driver.Inspector]. It deletes no key that has no lease.
func (d *Driver) Break(ctx context.Context, name, id string) error {
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
		if existed, err := d.deleteKey(ctx, e.key, e.revision); existed || err != nil {
			return explain(err)
		}
	}
	return driver.ErrLost
}

// Withdraw implements [driver.Inspector]: the place of a dead process ends with its session.
func (d *Driver) Withdraw(context.Context, string, string) error { return errors.ErrUnsupported }
