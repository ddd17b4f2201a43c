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
	// longest is how long a call may take. A member that takes longer is as good as gone: the client asks another one the
	// next time.
	longest = 2 * time.Second

	// patience is how long a request that has no place in a queue yet is repeated while etcd can't be reached: twice.
	patience = 4 * time.Second

	// outage is for how long a waiter puts up with that.
	outage = 30 * time.Second

	// withdrawal is how long a request that has failed stays to see its key deleted. After that it
	// goes on in the background, and what it does not reach is swept up later.
	withdrawal = driver.CancelTimeout * 3 / 5

	// noWaitTimeout bounds a request that must not wait, if its context does not.
	noWaitTimeout = driver.AnswerTimeout * 9 / 10
)

// errNoAnswer means that a request which must not wait got no answer in time.
const errNoAnswer driver.Sentinel = "no answer from etcd in time"

// call does one call to etcd, which takes no longer than the rest of ctx, or longest. The call is given up when it is over.
func call[T any](ctx context.Context, d *Driver, do func(context.Context) (T, error)) (T, error) {
	inner, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	got, err := do(inner)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case inner.Err() != nil:
		err = d.unanswered(ctx)
	}
	return got, err
}

// passing reports whether an error is one of the moment, of which another try may not hear: a member is down, or looks for
// a leader. What was asked for may have happened.
func passing(err error) bool {
	if r, ok := errors.AsType[*reachError](err); ok {
		return !r.permanent
	}
	code := codeOf(err)
	return code == codes.Unavailable || code == codes.Aborted || errors.Is(err, rpctypes.ErrTooManyRequests) || oldToken(err)
}

// oldToken reports whether an error means that the client's login has lapsed. It logs in anew for
// the next call.
func oldToken(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// refused reports whether an error is a no that will stay one.
func refused(err error) bool {
	if oldToken(err) {
		return false
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return true
	}
	return false
}

// codeOf returns the code of an error of the client, which has two kinds of them.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// noLease reports whether an error means that the lease of the request is no more.
func noLease(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// explain says what is to be done about the errors of which etcd's words don't say it.
func explain(err error) error {
	switch {
	case errors.Is(err, driver.ErrUnavailable):
	case errors.Is(err, errNoAnswer), passing(err):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w; nothing is granted or freed until it is compacted and defragmented, and etcdctl alarm disarm was run", err)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%w; the client needs a user and a password", err)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w; the role needs the permission to read and write all keys that begin with the lock's name", err)
	}
	return err
}

// prefixOf returns what the keys of a lock begin with.
func prefixOf(name string) string { return name + "/" }

// get reads all keys of a lock, as a majority has them, in the order of their creation.
func (d *Driver) get(ctx context.Context, name string) (*clientv3.GetResponse, error) {
	return call(ctx, d, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, prefixOf(name), clientv3.WithPrefix())
	})
}

// commit does a transaction.
func (d *Driver) commit(ctx context.Context, iff []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	return call(ctx, d, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return d.client.Txn(ctx).If(iff...).Then(then...).Else(otherwise...).Commit()
	})
}

// isKey is the condition that a key is the very one that was created at a revision.
func isKey(key string, revision int64) []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)}
}
