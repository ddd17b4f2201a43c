package access

import (
	"errors"
	"net"
	"net/http"
	"slices"

	"github.com/sniblock/snib/remotelock/wire"
)

// checkOrigin refuses what a page of somebody else causes through the browser of a principal.
//
// A browser attaches no token by itself. But it does attach a client certificate, and it
// reaches services on its own host. So what changes something must come from a page of the same
// origin. And on the loopback interface the host of the URL must be this one, or one that the
// policy names: a page whose name an attacker points at 127.0.0.1 would be of the same origin.
func (p *Policy) checkOrigin(r *http.Request) error {
	if (len(p.hosts) > 0 || isLoopbackListener(r)) && !wire.IsLoopback(r.Host) &&
		!slices.Contains(p.hosts, wire.HostName(r.Host)) {
		return errors.New("the host in the URL is not one of this service; use localhost, or add it to hosts in the policy")
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return errors.New("a page of another site caused this request")
	}
	return nil
}

// isLoopbackListener reports whether a request came in on the loopback interface.
func isLoopbackListener(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && wire.IsLoopback(local.String())
}
