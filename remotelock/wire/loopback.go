package wire

import (
	"net"
	"net/netip"
	"strings"
)

// IsLoopback reports whether a host is this machine by its name: localhost, or a loopback address.
// A port is ignored.
func IsLoopback(host string) bool {
	name := HostName(host)
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// HostName returns a host without its port and brackets, in lower case.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}
