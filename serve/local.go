package serve

import (
	"context"
	"net"
	"net/http"

	"github.com/sniblock/snib/remotelock/wire"
)

// proxyHeaders are the headers by which proxies say for whom they ask.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// proxyMark returns what tells that a request comes from a proxy, or "". A proxy on this host would
// let everybody in who reaches it. That of nginx has no header unless it is told to, but it speaks
// HTTP/1.0, as nobody else does.
func proxyMark(r *http.Request) string {
	for _, name := range proxyHeaders {
		if r.Header.Get(name) != "" {
			return "it has the header " + name
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return "it is one of HTTP/1.0"
	}
	return ""
}

// localAccess is the Authorizer of LocalOnly.
type localAccess struct{}

// LocalOnly returns the Authorizer of a service without [Options.Access]. It admits everybody on
// this host, and nobody else.
func LocalOnly() Authorizer { return localAccess{} }

// Authenticate implements [Authorizer]. A page in a browser may reach the service under a name of
// its own that it lets point to this host, so the name must be that of this host, too.
func (localAccess) Authenticate(r *http.Request) (*Principal, error) {
	refuse := func(why string) (*Principal, error) {
		return nil, wire.NewProblem(wire.ProblemForbidden, "without access control, "+why, 0)
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	isSocket := local != nil && local.Network() == "unix" // its mode says who may open it
	switch {
	case local == nil || !isSocket && (!wire.IsLoopback(local.String()) || !wire.IsLoopback(r.RemoteAddr)):
		return refuse("this service admits only clients on its own host, over a loopback address")
	case proxyMark(r) != "":
		return refuse("this service admits nobody through a proxy (" + proxyMark(r) + "); give it a policy")
	case !wire.IsLoopback(r.Host):
		return refuse("the host in the URL must be localhost or a loopback address")
	case http.NewCrossOriginProtection().Check(r) != nil:
		return refuse("requests from pages of other sites are not admitted")
	}
	return &Principal{Name: "local"}, nil
}

// Begin implements [Authorizer].
func (localAccess) Begin(context.Context, *Principal, Action) (func(Outcome), error) {
	return nil, nil
}

// May implements [Authorizer].
func (localAccess) May(*Principal, Verb, string) bool { return true }
