package access

import (
	"context"

	"github.com/sniblock/snib/serve"
)

// A Local admits everybody on this host, as a service without a policy does, and records what is
// forced.
type Local struct {
	serve.Authorizer
	audit *AuditLog
}

// NewLocal returns a Local that writes to an audit log.
func NewLocal(audit *AuditLog) *Local { return &Local{serve.LocalOnly(), audit} }

// Begin implements [serve.Authorizer].
func (l *Local) Begin(_ context.Context, p *serve.Principal, act serve.Action) (func(serve.Outcome), error) {
	return l.audit.begin(eventOf(p, act, ""), act)
}

// Recent returns up to n of the latest events of this process, the latest first.
func (l *Local) Recent(_ *serve.Principal, n int) []Event { return l.audit.Recent(n) }
