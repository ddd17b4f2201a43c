package cli

import (
	"errors"
	"net"
	"syscall"

	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// listener listens on the address of --listen.
func (c *serveCommand) listener() (net.Listener, error) {
	l, err := net.Listen("tcp", c.listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, usagef("--listen %s: another program listens there; stop it, or give another address", printable(c.listen))
	}
	if err != nil {
		return nil, usagef("--listen %s: %w", printable(c.listen), err)
	}
	return l, nil
}

// checkListen refuses an address that can't be right.
func checkListen(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return usagef("--listen %s: it must be HOST:PORT, such as 127.0.0.1:%s", printable(address), backend.ServicePort)
	}
	return nil
}
