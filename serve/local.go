package serve

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"github.com/sniblock/snib/remotelock/wire"
)

// localAccess is the Authorizer of a service without [Options.Access]. It admits everybody on this
// host, and nobody else.
type localAccess struct{}

// Authenticate implements [Authorizer]. A page in a browser may reach the service under a name of
// its own that it lets point to this host, so the name must be that of this host, too.
func (localAccess) Authenticate(r *http.Request) (*Principal, error) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !isLoopback(local.String()) || !isLoopback(r.RemoteAddr) {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
			Detail: "without access control, this service admits only clients on its own host, over a loopback address"}
	}
	if !isLoopbackName(r.Host) {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
			Detail: "without access control, the host in the URL must be localhost or a loopback address"}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden, Detail: "requests from pages of other sites are not admitted"}
	}
	return &Principal{Name: "local"}, nil
}

// Begin implements [Authorizer].
func (localAccess) Begin(context.Context, *Principal, Action) (func(Outcome) error, error) {
	return nil, nil
}

// May implements [Authorizer].
func (localAccess) May(*Principal, Verb, string) bool { return true }

// isLoopback reports whether an address, with a port, is a loopback address.
func isLoopback(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// isLoopbackName is isLoopback for the host of a URL, which may be a name and have no port.
func isLoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(trimBrackets(host))
	return err == nil && addr.Unmap().IsLoopback()
}

func trimBrackets(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
