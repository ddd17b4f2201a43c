package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// Begin implements [serve.Authorizer]: it checks the rights and the quota, and records what is
// forced.
func (a *Access) Begin(ctx context.Context, p *serve.Principal, act serve.Action) (func(serve.Outcome) error, error) {
	event := eventOf(p, act)
	rights, err := a.rights(p)
	if err == nil && !rights.allows(act) {
		err = &forbiddenError{rights.Name, act}
	}
	event.Namespace = rights.Namespace
	if err != nil {
		return nil, a.refuse(event, err)
	}
	end, err := a.count(ctx, rights, act)
	if err != nil {
		return nil, a.refuse(event, err)
	}
	if act.Verb != serve.VerbBreak && act.Verb != serve.VerbReserve {
		return end, nil
	}
	event.Event, event.Outcome = string(act.Verb), OutcomeBegun
	if err := a.conf.Audit.Record(event); err != nil {
		_ = end(serve.Outcome{Err: err})
		return nil, unrecorded()
	}
	return func(out serve.Outcome) error {
		err := end(out)
		event.Outcome, event.Token = OutcomeDone, max(event.Token, out.Token)
		if out.Err != nil || err != nil {
			event.Outcome = OutcomeFailed
		}
		_ = a.conf.Audit.Record(event) // it has begun by the log, which is what counts
		return err
	}, nil
}

// allows reports whether the rights allow an action.
func (r Rights) allows(act serve.Action) bool {
	switch {
	case act.Op == serve.OpStore:
		return true // each client needs to know what the store promises, and it is no secret
	case act.List:
		return r.Has(act.Verb) && r.MayCover(act.Name)
	}
	return r.Allows(act.Verb, act.Name)
}

// count applies the quota of the namespace to an action. The func that it returns must be
// called with what came of the action.
func (a *Access) count(ctx context.Context, rights Rights, act serve.Action) (func(serve.Outcome) error, error) {
	none := func(serve.Outcome) error { return nil }
	m := a.meter(rights)
	if m == nil {
		return none, nil
	}
	id := newHoldID(rights.prefix+act.Name, act.ID)
	switch act.Op {
	case serve.OpAcquire:
		return m.acquire(ctx, id, act)
	case serve.OpRenew:
		if err := m.lease(act); err != nil {
			return nil, err
		}
		return none, m.renew(ctx, id, time.Now())
	case serve.OpWithdraw:
		return ifDone(func() { m.withdrawn(id) }), nil
	case serve.OpRelease:
		return ifDone(func() { m.released(id) }), nil
	}
	return none, nil
}

// ifDone returns what Begin returns for an action after whose success do is called.
func ifDone(do func()) func(serve.Outcome) error {
	return func(out serve.Outcome) error {
		if out.Err == nil {
			do()
		}
		return nil
	}
}

// acquire applies the quota to an acquisition.
func (m *meter) acquire(ctx context.Context, id holdID, act serve.Action) (func(serve.Outcome) error, error) {
	if err := m.lease(act); err != nil {
		return nil, err
	}
	if err := m.admit(ctx, id); err != nil {
		return nil, err
	}
	// A client that sends its request again renews the hold that it has.
	if err := m.renew(ctx, id, time.Now()); err != nil {
		return nil, err
	}
	done, err := m.wait(id, act.Wait, act.PlaceTimeout)
	if err != nil {
		return nil, err
	}
	return func(out serve.Outcome) error {
		done(out)
		if out.Err == nil {
			if err := m.granted(id, time.Now()); err != nil {
				return refusal(err)
			}
		}
		return nil
	}, nil
}

// refuse records a refusal, and returns it as the service answers it. An error of the store is
// no refusal.
func (a *Access) refuse(event Event, err error) error {
	answer := refusal(err)
	var refused *serve.Refusal
	var blocked *BlockedError
	if !errors.As(answer, &refused) || errors.As(err, &blocked) && !blocked.First {
		return answer
	}
	event.Event, event.Reason = EventRefused, err.Error()
	_ = a.conf.Audit.Record(event) // refused it is, recorded or not
	return answer
}

// refusal returns an error as the service answers it.
func refusal(err error) error {
	var (
		refused     *RefusedError
		blocked     *BlockedError
		unavailable *UnavailableError
		forbidden   *forbiddenError
		exceeded    *ExceededError
		origin      *originError
	)
	switch {
	case errors.As(err, &refused):
		return &serve.Refusal{Status: http.StatusUnauthorized, Type: wire.ProblemMissing, Detail: refused.Error(), Challenge: `Bearer realm="snib"`}
	case errors.As(err, &blocked):
		return &serve.Refusal{Status: http.StatusTooManyRequests, Type: wire.ProblemBlocked, Detail: blocked.Error(), RetryAfter: blocked.RetryAfter}
	case errors.As(err, &unavailable):
		return &serve.Refusal{Status: http.StatusServiceUnavailable, Type: wire.ProblemIssuer, Detail: unavailable.Error(), RetryAfter: issuerInterval}
	case errors.As(err, &forbidden):
		return &serve.Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden, Detail: forbidden.Error()}
	case errors.As(err, &origin):
		return &serve.Refusal{Status: http.StatusForbidden, Type: wire.ProblemForbidden, Detail: origin.Error()}
	case errors.As(err, &exceeded) && exceeded.RetryAfter > 0:
		return &serve.Refusal{Status: http.StatusTooManyRequests, Type: wire.ProblemQuota, Detail: exceeded.Error(), RetryAfter: exceeded.RetryAfter}
	case errors.As(err, &exceeded):
		return &serve.Refusal{Status: http.StatusForbidden, Type: wire.ProblemQuota, Detail: exceeded.Error()}
	}
	return err
}

// unrecorded is the answer to a break or a reservation that the audit log can't record.
func unrecorded() error {
	return &serve.Refusal{
		Status: http.StatusServiceUnavailable, Type: wire.ProblemAudit, RetryAfter: time.Second,
		Detail: "the audit log can't be written, and nothing is broken or reserved without a record; see the log of the service",
	}
}

// A forbiddenError reports an action that somebody may not do.
type forbiddenError struct {
	who string
	act serve.Action
}

// Error implements the error interface.
func (e *forbiddenError) Error() string {
	switch {
	case e.act.List && e.act.Name == "": // whoever has the verb gets a list of what it covers
		return fmt.Sprintf("%s does not have the verb %s", e.who, e.act.Verb)
	case e.act.List:
		return fmt.Sprintf("%s may not %s locks whose names begin with %q", e.who, e.act.Verb, e.act.Name)
	}
	return fmt.Sprintf("%s may not %s %q", e.who, e.act.Verb, e.act.Name)
}

// eventOf returns what the audit log says of an action. Nothing in it is a secret.
func eventOf(p *serve.Principal, act serve.Action) Event {
	return Event{
		Who: p.Name, Remote: p.Rights.(*admission).remote,
		Verb: string(act.Verb), Op: string(act.Op), Name: act.Name, Token: act.Token, Reason: act.Why,
	}
}
