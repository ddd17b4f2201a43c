package serve

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// act does an action on a hold that has no answer but its success. It goes on if the client has
// gone: the audit log has what came of it.
func (s *Service) act(w http.ResponseWriter, r *http.Request, p *Principal, a *Action,
	do func(context.Context) error) error {
	ctx, cancel := bounded(context.WithoutCancel(r.Context()))
	defer cancel()
	if err := s.begun(ctx, p, a, do); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// begun does an action that grants nothing, if the Authorizer lets it begin. It may learn meanwhile
// which hold it is about.
func (s *Service) begun(ctx context.Context, p *Principal, a *Action, do func(context.Context) error) error {
	end, err := s.opts.Access.Begin(ctx, p, *a)
	if err != nil {
		return err
	}
	err = do(ctx)
	if end != nil {
		end(Outcome{Err: err, Token: a.Token})
	}
	return err
}

// refOf returns the hold that a message names.
func refOf(p *Principal, l wire.Lease) (ref, error) {
	name, err := storeName(p, l.Name)
	if err != nil {
		return ref{}, err
	}
	id, err := checkID(l.ID)
	return ref{name, id}, err
}

func (s *Service) renew(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Renew) error {
	isBatch := len(msg.Leases) > 0
	switch {
	case isBatch && (msg.Lease != nil || msg.TTL != 0):
		return invalidf("there are leases, so there can't be a name, id or ttl_ms beside them")
	case len(msg.Leases) > wire.MaxLeases:
		return invalidf("leases: there are %d; at most %d are allowed", len(msg.Leases), wire.MaxLeases)
	case msg.Lease == nil && !isBatch:
		return invalidf("name and id are missing, or leases")
	case !isBatch:
		msg.Leases = []wire.Renewable{{Lease: *msg.Lease, TTL: msg.TTL}}
	}
	results, err := s.renewed(r.Context(), p, msg.Leases, isBatch)
	if err != nil {
		return err
	}
	if isBatch {
		return writeJSON(w, http.StatusOK, wire.RenewedAll{Results: results})
	}
	return writeJSON(w, http.StatusOK, results[0])
}

// renewed renews holds and returns the answers, or the error of a single one.
func (s *Service) renewed(ctx context.Context, p *Principal, msgs []wire.Renewable,
	isBatch bool) ([]wire.Renewed, error) {
	all := make([]renewal, len(msgs))
	for i, m := range msgs {
		var err, ttlErr error
		all[i].ref, err = refOf(p, m.Lease)
		all[i].ttl, ttlErr = ttlOf(m.TTL)
		if err := errors.Join(err, ttlErr); err != nil {
			return nil, err
		}
	}
	for i, m := range msgs {
		r := &all[i]
		if r.err = s.checkTTL(r.ttl); r.err == nil {
			r.end, r.err = s.opts.Access.Begin(ctx, p, Action{Verb: VerbAcquire, Op: OpRenew, Name: m.Name, TTL: r.ttl})
		}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	s.renewAll(ctx, all)
	results := make([]wire.Renewed, len(all))
	for i, r := range all {
		if r.end != nil {
			r.end(Outcome{Err: r.err})
		}
		switch {
		case r.err == nil:
			results[i].TTL = int64(r.ttl / time.Millisecond)
		case !isBatch:
			return nil, r.err
		default:
			problem := s.problemOf(r.err)
			results[i] = wire.Renewed{Type: problem.Type, Detail: problem.Detail}
		}
	}
	return results, nil
}

func (s *Service) release(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Lease) error {
	return s.actOn(w, r, p, *msg, OpRelease, func(ctx context.Context, ref ref, l driver.Lease) error {
		err := l.Release(ctx)
		if err == nil {
			s.giveUp(placeKey{ref.name, ref.id.client}) // a copy of its request may be on its way
		}
		return err
	})
}

// actOn is act for the lease of a hold.
func (s *Service) actOn(w http.ResponseWriter, r *http.Request, p *Principal, msg wire.Lease, op Op,
	do func(context.Context, ref, driver.Lease) error) error {
	ref, err := refOf(p, msg)
	if err != nil {
		return err
	}
	return s.act(w, r, p, &Action{Verb: VerbAcquire, Op: op, Name: msg.Name}, func(ctx context.Context) error {
		l, err := s.lease(ctx, ref, time.Second) // the TTL does not matter
		if err != nil {
			return err
		}
		return do(ctx, ref, l)
	})
}

func (s *Service) label(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Label) error {
	if msg.Reserved {
		return s.relabel(w, r, p, msg)
	}
	if msg.Token != 0 {
		return invalidf("token: it is only for a reservation that is taken over; a hold is named by its id")
	}
	holder, err := holderOf(msg.Process)
	if err != nil {
		return err
	}
	return s.actOn(w, r, p, msg.Lease, OpLabel,
		func(ctx context.Context, _ ref, l driver.Lease) error { return l.SetHolder(ctx, holder) })
}

// relabel lets a client take a reservation over.
func (s *Service) relabel(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Label) error {
	name, err := storeName(p, msg.Name)
	if err := errors.Join(err, checkText("label", msg.Label, wire.MaxLabel)); err != nil {
		return err
	}
	switch {
	case msg.ID != "":
		return invalidf("id: a reservation is taken over by its token alone")
	case msg.Process != (wire.Process{Label: msg.Label}):
		return invalidf("host, pid, kind: a reservation has no process")
	case msg.Token == 0:
		return invalidf("token: it is missing")
	case msg.Label == "":
		return errNoNote()
	}
	a := Action{Verb: VerbReserve, Op: OpLabel, Name: msg.Name, Token: msg.Token, Why: msg.Label}
	return s.act(w, r, p, &a, func(ctx context.Context) error {
		st, err := s.driver.Status(ctx, name)
		if err != nil {
			return err
		}
		h, err := findIn(st, func(h driver.Holding) bool { return h.Token == msg.Token && isReserved(h.Holder) })
		if err != nil {
			return err
		}
		h.Holder.Label = msg.Label
		return s.driver.Lease(name, h.ID, h.Left).SetHolder(ctx, h.Holder)
	})
}

func (s *Service) breakHold(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Break) error {
	name, err := storeName(p, msg.Name)
	if err := errors.Join(err, checkText("reason", msg.Reason, wire.MaxReason)); err != nil {
		return err
	}
	switch {
	case msg.Reason == "":
		return invalidf("reason: it is missing; it is for those who ask later why the hold ended")
	case (msg.Token == 0) == (msg.ID == ""):
		return invalidf("token: give it or the id of the hold, so that no other one is ended")
	}
	a := Action{Verb: VerbBreak, Op: OpBreak, Name: msg.Name, Token: msg.Token, Why: msg.Reason}
	if msg.Reserved {
		a.Verb = VerbReserve
	}
	return s.act(w, r, p, &a, func(ctx context.Context) error { return s.breakSeen(ctx, name, msg, &a.Token) })
}

// breakSeen ends the hold that was seen, and no other one: it looks up the id of the hold with that
// token, and the store compares the id. It notes the token.
func (s *Service) breakSeen(ctx context.Context, name string, msg *wire.Break, token *uint64) error {
	st, err := s.driver.Status(ctx, name)
	if err != nil {
		return err
	}
	h, err := findIn(st, func(h driver.Holding) bool {
		isSeen := h.Token == msg.Token
		if msg.ID != "" {
			isSeen = parseID(msg.ID).names(h.ID)
		}
		return isSeen && (!msg.Reserved || isReserved(h.Holder))
	})
	if err != nil {
		return err
	}
	*token = h.Token
	return s.driver.Break(ctx, name, h.ID)
}

// A reservation is a hold without a process. Nobody renews it: its TTL is for how long the lock is
// reserved. In the store, it has [driver.KindReserved].

// checkReservation completes a message that reserves a lock.
func (s *Service) checkReservation(msg *wire.Acquire) error {
	switch {
	case msg.Label == "":
		return errNoNote()
	case msg.Wait != 0:
		return invalidf("wait_ms: a reservation does not wait")
	case msg.Process != (wire.Process{Label: msg.Label}):
		return invalidf("host, pid, kind: a reservation has no process")
	case msg.TTL == 0 && s.info.MaxTTL > 0 && s.info.MaxTTL < driver.LongestTTL:
		return invalidf("ttl_ms: it is missing; this store keeps a lock for at most %d", s.info.MaxTTL/time.Millisecond)
	case msg.TTL == 0:
		msg.TTL = int64(driver.LongestTTL / time.Millisecond)
	}
	return nil
}

// errNoNote reports a reservation without a label.
func errNoNote() error {
	return invalidf("label: it is missing; it says to others why the lock is reserved")
}

func isReserved(h driver.Holder) bool { return h.Kind == driver.KindReserved }
