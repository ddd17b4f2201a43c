package pattern

import (
	"cmp"
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// PutIfAbsent is a pattern with etcd.
const PutIfAbsent Name = "a key without a lease"

// putIfAbsent makes a key if there is none, in one transaction. The key has no lease, so it stays
// until its client deletes it.
func putIfAbsent(ctx context.Context, s Spec, _ Tracer) (*Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: s.URLs, Logger: zap.NewNop(),
		Context: context.WithoutCancel(ctx)})
	if err != nil {
		return nil, err
	}
	key := cmp.Or(s.Lock, LockName)
	return &Client{
		Try: func(ctx context.Context) (bool, error) {
			answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, s.Client)).Commit()
			if err != nil {
				return false, err
			}
			return answer.Succeeded, nil
		},
		Release: func(ctx context.Context) error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", s.Client)).Then(clientv3.OpDelete(key)).Commit()
			return err
		},
		Close: func() { _ = client.Close() },
	}, nil
}
