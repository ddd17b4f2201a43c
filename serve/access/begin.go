package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// Begin implements [serve.Authorizer]: it checks the rights, and records what is forced.
func (a *Access) Begin(_ context.Context, p *serve.Principal, act serve.Action) (func(serve.Outcome), error) {
	admitted := p.Rights.(*admission)
	event := eventOf(p, act, admitted.remote)
	rights, err := a.rights(p)
	event.Namespace = rights.Namespace
	switch most := rights.maxTTL; {
	case err != nil:
	case act.List && !rights.hasScopeOf(admitted.rights):
		err = fmt.Errorf("the rights of %s have changed; send the request again", rights.Name)
	case !rights.allows(act):
		err = rights.describe(act)
	case most > 0 && act.MinHold > most:
		err = fmt.Errorf("min_hold_ms: [namespace.%s] allows %v at most", rights.Namespace, most)
	case most > 0 && act.TTL > most && act.Verb != serve.VerbReserve: // whoever may reserve a lock says for how long
		err = fmt.Errorf("ttl_ms: [namespace.%s] allows %v at most", rights.Namespace, most)
	}
	if err != nil {
		return nil, a.refuse(event, err)
	}
	return a.audit.begin(event, act)
}

// begin records a break or a reservation before it happens. The func that it returns records what
// came of it.
func (l *AuditLog) begin(event Event, act serve.Action) (func(serve.Outcome), error) {
	if act.Verb != serve.VerbBreak && act.Verb != serve.VerbReserve {
		return nil, nil
	}
	event.Event, event.Outcome = string(act.Verb), OutcomeBegun
	if err := l.Record(event); err != nil {
		problem := wire.NewProblem(wire.ProblemAudit, "nothing is broken or reserved without a record in the audit log", time.Second)
		return nil, fmt.Errorf("%w: %w", problem, err) // the service logs all of it
	}
	return func(out serve.Outcome) {
		event.Outcome, event.Token = OutcomeDone, out.Token
		switch {
		case out.Err == nil:
		case isRefused(out.Err):
			event.Outcome = OutcomeFailed
		default:
			event.Outcome = OutcomeUnknown
		}
		_ = l.Record(event) // it has begun by the log, which is what counts
	}, nil
}

// isRefused reports whether an error says that nothing was done. A store that did not answer may
// have done it, or do it yet.
func isRefused(err error) bool {
	isTarget := func(target error) bool { return errors.Is(err, target) }
	return errors.As(err, new(*wire.Problem)) || slices.ContainsFunc([]error{
		driver.ErrHeld, driver.ErrLost, driver.ErrKind, driver.ErrInvalid}, isTarget)
}

// allows reports whether the rights allow an action.
func (r Rights) allows(act serve.Action) bool {
	switch {
	case act.Op == serve.OpStore:
		return true // each client needs to know what the store promises, and it is no secret
	case act.Op == serve.OpDoctor:
		return r.Namespace == "" && r.Allows(act.Verb, "")
	case act.List:
		return r.Has(act.Verb) && r.MayCover(act.Name)
	}
	return r.Allows(act.Verb, act.Name)
}

// refuse records a refusal, and returns it as the service answers it.
func (a *Access) refuse(event Event, err error) error {
	event.Event, event.Reason = EventRefused, err.Error()
	_ = a.audit.Record(event) // refused it is, recorded or not
	return refusal(err)
}

// refusal returns an error as the service answers it.
func refusal(err error) error {
	var refused *refusedError
	if errors.As(err, &refused) {
		return wire.NewProblem(wire.ProblemMissing, refused.Error(), 0)
	}
	return wire.NewProblem(wire.ProblemForbidden, err.Error(), 0)
}

// describe returns the error that the rights do not allow an action.
func (r Rights) describe(act serve.Action) error {
	switch {
	case act.Op == serve.OpDoctor:
		return errors.New("this is about the whole store: it needs the verb admin on all locks, outside of namespaces")
	case act.List && act.Name == "": // whoever has the verb gets a list of what it covers
		return fmt.Errorf("%s does not have the verb %s", r.Name, act.Verb)
	case act.List:
		return fmt.Errorf("%s may not %s locks whose names begin with %q", r.Name, act.Verb, act.Name)
	}
	return fmt.Errorf("%s may not %s %q", r.Name, act.Verb, act.Name)
}

// eventOf returns what the audit log says of an action. Nothing in it is a secret.
func eventOf(p *serve.Principal, act serve.Action, remote string) Event {
	return Event{
		Who: p.Name, Remote: remote,
		Verb: string(act.Verb), Op: string(act.Op), Name: act.Name, Token: act.Token, Reason: act.Why,
	}
}

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
