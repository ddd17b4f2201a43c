package zklock

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

const (
	// errApart means that there is no connection at the moment, or that the one is gone on which something was asked. What
	// became of it is not known.
	errApart driver.Sentinel = "no connection to ZooKeeper"

	// errOver means that the session has ended, and all its nodes with it.
	errOver driver.Sentinel = "the session is over"

	// errGone means that our node is not there any more.
	errGone driver.Sentinel = "our node is gone"
)

// told makes of an error of the client library one of ours, as far as it says something about connection or session.
func told(err error) error {
	switch {
	case errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("%w: %w", errOver, err)
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrClosing),
		errors.Is(err, zk.ErrSessionMoved):
		return fmt.Errorf("%w: %w", errApart, err)
	}
	return err
}

// answered reports whether the error of a call is the answer of a server.
func answered(err error) bool {
	return !errors.Is(err, errApart) && !errors.Is(err, errOver) && !errors.Is(err, driver.ErrClosed)
}

// unimplemented is what the client library makes of the answer of servers that do not know a request.
const unimplemented = "unknown error: -6"

// explain says what is to be done about the errors of which the server's words don't say it. path is what was to be used.
func (d *Driver) explain(err error, path string) error {
	who := "without a user"
	if d.conf.digest != nil {
		who = "as the user that was named; the password may be wrong"
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: we may not use %s (%s); its ACL, and that of what is above, must let us create, read, write and delete",
			err, path, who)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w ACL: the server refuses it, as with entries of the scheme auth and no user: %w", driver.ErrInvalid, err)
	}
	return err
}
