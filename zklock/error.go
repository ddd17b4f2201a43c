package zklock

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// errDisconnected means that there is no connection now, or that the connection broke
	// on which a request was sent. The outcome of such a request is unknown.
	errDisconnected driver.Sentinel = "no connection to ZooKeeper"

	// errNoAnswer means that an attempt that may wait was not told in time whether it has to.
	errNoAnswer driver.Sentinel = "no answer from ZooKeeper in time"

	// errSessionOver means that the session has ended, and all its nodes with it.
	errSessionOver driver.Sentinel = "the session is over"

	// errNodeGone means that our own node no longer exists.
	errNodeGone driver.Sentinel = "the node of this session is gone"
)

// classify wraps an error of the client library in one of ours, if it is about the
// connection or the session. It returns other errors unchanged.
func classify(err error) error {
	switch {
	case errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("%w: %w", errSessionOver, err)
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrClosing),
		// The last two come from the network connection.
		errors.Is(err, zk.ErrSessionMoved), errors.As(err, new(net.Error)), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", errDisconnected, err)
	}
	return err
}

// contextError returns the error of an acquisition whose context has ended with cause, and which
// failed with err. If it was not queued by then, the ensemble has not answered it, and nobody is
// known to hold the lock.
func contextError(cause, err error, queued bool) error {
	switch {
	case errors.Is(err, errDisconnected):
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case !queued:
		err = fmt.Errorf("%w: no answer", driver.ErrUnavailable)
	}
	return driverkit.EndOfWait(cause, err)
}

// isPermanent reports whether a server can't be reached for a reason that does not pass by
// itself: its name does not exist, or TLS fails.
func isPermanent(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	if ok {
		return dns.IsNotFound
	}
	alert, ok := errors.AsType[*net.OpError](err)
	return ok && alert.Op == "remote error" || // the server refuses our side of TLS
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError))
}

// isAnswer reports whether the error of a call is the answer of a server.
func isAnswer(err error) bool {
	return !errors.Is(err, errDisconnected) && !errors.Is(err, errSessionOver) && !errors.Is(err, driver.ErrClosed)
}

// explain adds a remedy where the server's message has none. path is the node that the call
// used.
func (d *Driver) explain(err error, path string) error {
	who := "without a user"
	if d.conf.digest != nil {
		who = "as the user that was named; the password may be wrong"
	}
	switch {
	case errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnavailable):
	case errors.Is(err, errDisconnected), errors.Is(err, errNoAnswer), errors.Is(err, zk.ErrSessionExpired):
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: this client may not use %s (%s); its ACL, and those of the nodes above it, must allow it "+
			"to create, read, write and delete",
			err, path, who)
	case errors.Is(err, zk.ErrInvalidACL):
		return driver.Invalidf(
			"ACL: the server refuses it, for example because it has entries of the scheme auth and there is no user: %w", err)
	}
	return err
}
