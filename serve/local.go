package serve

import (
	"context"
	"net"
	"net/http"

	"github.com/sniblock/snib/remotelock/wire"
)

// localAccess is the Authorizer of a service without [Options.Access]. It admits everybody on this
// host, and nobody else.
type localAccess struct{}

// Authenticate implements [Authorizer]. A page in a browser may reach the service under a name of
// its own that it lets point to this host, so the name must be that of this host, too.
func (localAccess) Authenticate(r *http.Request) (*Principal, error) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !wire.IsLoopback(local.String()) || !wire.IsLoopback(r.RemoteAddr) {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
			Detail: "without access control, this service admits only clients on its own host, over a loopback address"}
	}
	if !wire.IsLoopback(r.Host) {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
			Detail: "without access control, the host in the URL must be localhost or a loopback address"}
	}
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden, Detail: "requests from pages of other sites are not admitted"}
	}
	return &Principal{Name: "local"}, nil
}

// Begin implements [Authorizer].
func (localAccess) Begin(context.Context, *Principal, Action) (func(Outcome), error) {
	return nil, nil
}

// May implements [Authorizer].
func (localAccess) May(*Principal, Verb, string) bool { return true }
