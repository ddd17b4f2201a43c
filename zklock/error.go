package zklock

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

const (
	// errApart means that there is no connection at the moment, or that the one is gone on which something was asked. What
	// became of it is not known.
	errApart driver.Sentinel = "no connection to ZooKeeper"

	// errSilent means that a request which must not wait got no answer in time.
	errSilent driver.Sentinel = "no answer from ZooKeeper in time"

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
		errors.Is(err, zk.ErrSessionMoved), errors.As(err, new(net.Error)), errors.Is(err, io.EOF): // the last two come from the connection
		return fmt.Errorf("%w: %w", errApart, err)
	}
	return err
}

// ended is the error of an acquisition whose context has ended, and that failed with err.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case !errors.Is(err, errApart):
		return cause
	case errors.Is(err, cause):
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// isPermanent reports whether a server could not be reached for a reason that does not pass by
// itself: nobody knows its name, or TLS fails.
func isPermanent(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	if ok {
		return dns.IsNotFound
	}
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error" || // the server refuses our side of TLS
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError))
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
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed):
	case errors.Is(err, errApart), errors.Is(err, errSilent), errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: we may not use %s (%s); its ACL, and that of what is above, must let us create, read, write and delete",
			err, path, who)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w ACL: the server refuses it, as with entries of the scheme auth and no user: %w", driver.ErrInvalid, err)
	}
	return err
}
