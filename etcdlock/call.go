package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sniblock/snib/driver"
)

const (
	// callTimeout is how long a call may take. A member that takes longer is as good as dead:
	// the client uses another one for the next call.
	callTimeout = 2 * time.Second

	// unqueuedRetryTimeout is how long a request without a place in a queue is retried while
	// etcd can't be reached. It is long enough for two tries. After that, the Locker retries.
	unqueuedRetryTimeout = 4 * time.Second

	// cleanupTimeout is how long a failed request waits until its key is deleted. After that,
	// the deletion continues in the background, and keys that it does not reach are deleted
	// later.
	cleanupTimeout = driver.CancelTimeout * 3 / 5
)

// call executes one call to etcd and abandons it after callTimeout, or when ctx is done.
func call[T any](ctx context.Context, d *Driver, do func(context.Context) (T, error)) (T, error) {
	inner, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := do(inner)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case inner.Err() != nil:
		err = d.diagnoseNoAnswer(ctx)
	}
	return got, err
}

// isTransient reports whether a retry may succeed: a member is down, or elects a leader. The
// request may have been executed.
func isTransient(err error) bool {
	if r, ok := errors.AsType[*reachError](err); ok {
		return !r.permanent
	}
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.Aborted || errors.Is(err, rpctypes.ErrTooManyRequests) ||
		isLoginExpired(err)
}

// isLoginExpired reports whether the client's login has expired. The client logs in again for
// the next call.
func isLoginExpired(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// isPermanent reports whether a retry would fail in the same way.
func isPermanent(err error) bool {
	if isLoginExpired(err) {
		return false
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition,
		codes.Unimplemented:
		return true
	}
	return false
}

// codeOf returns the code of an error of the client, which has two kinds of errors.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// isLeaseGone reports whether the etcd lease of the request no longer exists.
func isLeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// explain adds a remedy where etcd's message has none.
func explain(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
	case isTransient(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w; etcd grants nothing until it is compacted and defragmented, and etcdctl alarm "+
			"disarm was run", driver.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w; the client needs a user and a password", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w; the role needs the permission to read and write all keys that begin with the lock's name", err)
	}
	return err
}

// prefixOf returns the prefix of the keys of a lock.
func prefixOf(name string) string { return name + "/" }

// getKeys reads all keys of a lock, as a majority has them.
func (d *Driver) getKeys(ctx context.Context, name string) (*clientv3.GetResponse, error) {
	return call(ctx, d, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, prefixOf(name), clientv3.WithPrefix())
	})
}

// commit executes a transaction.
func (d *Driver) commit(ctx context.Context, iff []clientv3.Cmp, then,
	otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	return call(ctx, d, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return d.client.Txn(ctx).If(iff...).Then(then...).Else(otherwise...).Commit()
	})
}

// isCreatedAt returns the condition that a key is the one that was created at a revision.
func isCreatedAt(key string, revision int64) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)}
}
