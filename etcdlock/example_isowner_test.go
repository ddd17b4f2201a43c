package etcdlock_test

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/etcdlock"
)

// Data in etcd is written under a lock in etcd, or not at all.
func ExampleDriver_IsOwner() {
	write := func(ctx context.Context, client *clientv3.Client) error {
		d, err := etcdlock.New(client)
		if err != nil {
			return err
		}
		locker, err := snib.New(d)
		if err != nil {
			return err
		}
		defer locker.Close()
		return locker.Do(ctx, "orders/42", func(ctx context.Context, lock *snib.Lock) error {
			owner := d.IsOwner(lock.Name(), lock.Token())
			answer, err := client.Txn(ctx).If(owner).Then(clientv3.OpPut("data/orders/42", "paid")).Commit()
			if err == nil && !answer.Succeeded {
				err = errors.New("the lock was lost, and nothing was written")
			}
			return err
		})
	}
	_ = write
}
