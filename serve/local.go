package serve

import (
	"context"
	"net"
	"net/http"

	"github.com/sniblock/snib/remotelock/wire"
)

// proxyHeaders are the headers by which proxies say for whom they ask. A proxy on this host would
// let everybody in who reaches it.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// localAccess is the Authorizer of LocalOnly.
type localAccess struct{}

// LocalOnly returns the Authorizer of a service without [Options.Access]. It admits everybody on
// this host, and nobody else.
func LocalOnly() Authorizer { return localAccess{} }

// Authenticate implements [Authorizer]. A page in a browser may reach the service under a name of
// its own that it lets point to this host, so the name must be that of this host, too.
func (localAccess) Authenticate(r *http.Request) (*Principal, error) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	isSocket := local != nil && local.Network() == "unix" // its mode says who may open it
	if local == nil || !isSocket && (!wire.IsLoopback(local.String()) || !wire.IsLoopback(r.RemoteAddr)) {
		return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
			Detail: "without access control, this service admits only clients on its own host, over a loopback address"}
	}
	for _, name := range proxyHeaders {
		if r.Header.Get(name) != "" {
			return nil, &Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden,
				Detail: "without access control, this service admits nobody through a proxy (the request has the header " + name + "); give it a policy"}
		}
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
