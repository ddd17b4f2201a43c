package driverkit

import (
	"context"
	"errors"
	"fmt"

	"github.com/sniblock/snib/driver"
)

// RemoteError returns the answer to a request about a lease that only its session can make.
func RemoteError() error {
	return fmt.Errorf("%w: only what acquired a lease of a session can use it", errors.ErrUnsupported)
}

// A RemoteLease is a lease that belongs to a session, and is named by its id alone. Each request
// about it, and its renewal, is answered with [RemoteError]. It implements [driver.Lease].
type RemoteLease string

// ID returns the name of the grant.
func (r RemoteLease) ID() string { return string(r) }

// Grant implements [driver.Lease]. Nothing is known of the grant.
func (RemoteLease) Grant() driver.Grant { return driver.Grant{} }

// Release implements [driver.Lease]. It returns [RemoteError].
func (RemoteLease) Release(context.Context) error { return RemoteError() }

// SetHolder implements [driver.Lease]. It returns [RemoteError].
func (RemoteLease) SetHolder(context.Context, driver.Holder) error { return RemoteError() }
