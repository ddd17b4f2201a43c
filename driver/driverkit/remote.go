package driverkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// RemoteError returns the answer to a request that only the process whose session a lease belongs
// to can make.
func RemoteError() error {
	return fmt.Errorf("%w: the lease belongs to the session of another process", errors.ErrUnsupported)
}

// A RemoteLease is a lease that belongs to the session of another process, and is named by its id.
// It can be released, but not renewed: the answer to its renewal is [RemoteError]. It implements
// [driver.Lease].
type RemoteLease struct {
	id      string
	release func(context.Context) error

	sem        chan struct{} // of capacity 1: held during a release; guards what follows
	released   bool
	unanswered bool // a release may have been executed
}

// NewRemoteLease returns a RemoteLease. release asks the store to end the lease with the id. It
// returns an error that matches [driver.ErrLost] if there is none, or [driver.ErrUnavailable] if
// the outcome is not known.
func NewRemoteLease(id string, release func(context.Context) error) *RemoteLease {
	return &RemoteLease{id: id, release: release, sem: make(chan struct{}, 1)}
}

// ID returns the name of the grant.
func (r *RemoteLease) ID() string { return r.id }

// Grant implements [driver.Lease]. Nothing is known of the grant.
func (r *RemoteLease) Grant() driver.Grant { return driver.Grant{} }

// SetHolder implements [driver.Lease]. It returns [RemoteError].
func (r *RemoteLease) SetHolder(context.Context, driver.Holder) error { return RemoteError() }

// Release implements [driver.Lease].
func (r *RemoteLease) Release(ctx context.Context) error {
	select {
	case r.sem <- struct{}{}:
		defer func() { <-r.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.released {
		return nil
	}
	err := r.release(ctx)
	r.released = err == nil || r.unanswered && SaysLost(ctx, err)
	if r.released {
		return nil
	}
	r.unanswered = r.unanswered || errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil
	return err
}
