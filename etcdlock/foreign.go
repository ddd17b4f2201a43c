package etcdlock

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// Some libraries, such as python-etcd3, keep a lock in one key with a lease, whose name is that of
// the lock. A key without a lease may be the data that the lock protects.

// readOneKey returns the operation that reads the key whose name is that of the lock. It reads the
// value, too, because etcd 3.7 answers a request for keys only without their leases.
func readOneKey(name string) clientv3.Op { return clientv3.OpGet(name) }

// oneKeyHasNoLease returns the condition that the key whose name is that of the lock has no lease,
// or does not exist.
func oneKeyHasNoLease(name string) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(name), "=", 0)
}

// checkOneKey returns an error that matches ErrKind if the answer to readOneKey shows the lock of
// another library.
func checkOneKey(answer *etcdserverpb.ResponseOp) error {
	kvs := answer.GetResponseRange().Kvs
	if len(kvs) == 0 || kvs[0].Lease == 0 {
		return nil
	}
	return fmt.Errorf("%w: the key %q has a lease, as a lock of python-etcd3 has", driver.ErrKind, kvs[0].Key)
}

// foreignUse returns the hold that people are shown if a name is in use as something that makes
// each request fail with ErrKind, or nil. It has no id, because Break can't end it.
func (d *Driver) foreignUse(ctx context.Context, name string, q queue, ttls ttls) (*driver.Holding, error) {
	for _, e := range q {
		if e.etcdLease == 0 {
			return &driver.Holding{Foreign: fmt.Sprintf("the key %q, which has no lease", e.key), Left: driver.NoExpiry}, nil
		}
	}
	answer, err := call(ctx, d,
		func(ctx context.Context) (clientv3.OpResponse, error) { return d.client.Do(ctx, readOneKey(name)) })
	if err != nil {
		return nil, err
	}
	kvs := answer.Get().Kvs
	if len(kvs) == 0 || kvs[0].Lease == 0 {
		return nil, nil //nolint:nilnil // there is nothing else
	}
	left, err := d.timeLeft(ctx, kvs[0].Lease, ttls)
	return &driver.Holding{Foreign: fmt.Sprintf("the key %q with a lease, perhaps a lock of python-etcd3", name),
		Left: left}, err
}

// timeLeft returns how long a lease of etcd lasts if it is not kept alive.
func (d *Driver) timeLeft(ctx context.Context, lease int64, ttls ttls) (time.Duration, error) {
	if left, known := ttls[lease]; known {
		return left, nil
	}
	answer, err := call(ctx, d, func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
		return d.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	})
	if err != nil {
		return 0, err
	}
	ttls[lease] = time.Duration(max(0, answer.TTL)) * time.Second
	return ttls[lease], nil
}
