package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// page is how many keys List reads at a time.
const page = 1000

// Status implements [driver.Inspector]. Strangers are shown by their keys. Since when somebody holds or waits is by the clocks
// of the two hosts, and for a holder that has waited it is known after the first renewal; until then it is 0. For how long
// a hold will last is known to the second.
func (d *Driver) Status(ctx context.Context, name string) (driver.Status, error) {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return driver.Status{}, err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	now, err := d.get(ctx, name)
	if err != nil {
		return driver.Status{}, explain(err)
	}
	return d.status(ctx, name, queueOf(name, now.Kvs), lefts{})
}

// lefts are how long leases last if they are not kept alive.
type lefts map[int64]time.Duration

// status describes a queue to people.
func (d *Driver) status(ctx context.Context, name string, q queue, left lefts) (driver.Status, error) {
	st := driver.Status{Name: name}
	if len(q) > 0 {
		st.Shared, st.Slots = q[0].note.Shared, q[0].note.Slots
	}
	holders, waiters := q.split()
	for _, e := range holders {
		if _, known := left[e.lease]; !known && e.lease != 0 {
			answer, err := call(ctx, d, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
				return d.client.TimeToLive(ctx, clientv3.LeaseID(e.lease))
			})
			if err != nil {
				return driver.Status{}, explain(err)
			}
			left[e.lease] = time.Duration(max(0, answer.TTL)) * time.Second
		}
		st.Holders = append(st.Holders, driver.Holding{
			Owner: e.note.Owner, Token: tokenOf(e.revision), Holder: e.note.holder(), Held: since(e.note.Held), Left: left[e.lease],
		})
	}
	for _, e := range waiters {
		st.Waiters = append(st.Waiters, driver.Waiting{
			Owner: e.note.Owner, Shared: e.note.Shared, Holder: e.note.holder(), Waited: since(e.note.Asked),
		})
	}
	return st, nil
}

// since returns how long ago it was, or 0 if it is not known.
func since(milli int64) time.Duration {
	if milli == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(milli)))
}

// List implements [driver.Inspector]. It shows locks of ours and of package concurrency, and no other keys, and reads etcd page
// by page, in the order of the first keys.
func (d *Driver) List(ctx context.Context, prefix string, yield func(driver.Status) bool) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	left := lefts{}
	seen := map[string]bool{}
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; ; {
		if from == "" {
			from = "\x00" // an empty key is none
		}
		got, err := call(ctx, d, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return d.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		})
		if err != nil {
			return explain(err)
		}
		for _, kv := range got.Kvs {
			_, known := entryOf(kv)
			name, _ := splitKey(string(kv.Key))
			if !known || seen[name] || !strings.HasPrefix(name, prefix) || name == "" {
				continue
			}
			seen[name] = true
			now, err := d.get(ctx, name)
			if err != nil {
				return explain(err)
			}
			st, err := d.status(ctx, name, queueOf(name, now.Kvs), left)
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

// Break implements [driver.Inspector].
func (d *Driver) Break(ctx context.Context, name, owner string, token uint64) error {
	if err := d.life.Ready(ctx, d.conf.err); err != nil {
		return err
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	now, err := d.get(ctx, name)
	if err != nil {
		return explain(err)
	}
	holders, _ := queueOf(name, now.Kvs).split()
	for _, e := range holders {
		if e.note.Owner != owner || tokenOf(e.revision) != token {
			continue
		}
		answer, err := d.commit(ctx, isKey(e.key, e.revision), []clientv3.Op{clientv3.OpDelete(e.key)}, nil)
		if err != nil {
			return explain(err)
		}
		if answer.Succeeded {
			return nil
		}
	}
	return fmt.Errorf("%w: %q does not hold it with token %d", driver.ErrLost, owner, token)
}
