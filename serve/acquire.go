package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/waiting"
)

func (s *Service) acquire(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Acquire) error {
	arrived := driver.Now()
	key, req, err := s.acquisition(p, msg)
	if err != nil {
		return err
	}
	ctx := r.Context()
	action := Action{
		Verb: VerbAcquire, Op: OpAcquire, Name: msg.Name, TTL: req.TTL, MinHold: req.MinHold,
	}
	if msg.Reserve {
		action.Verb, action.Why = VerbReserve, msg.Label
		ctx = context.WithoutCancel(ctx) // as in act
	}
	end, err := s.opts.Access.Begin(ctx, p, action)
	if err != nil {
		return err
	}
	h, err := s.get(ctx, key, p.Prefix, req, msg, arrived)
	outcome := Outcome{Err: err}
	if err == nil {
		outcome.Token = h.said.Token
	}
	if end != nil {
		end(outcome)
	}
	waits := errors.Is(err, errQueued)
	switch {
	case waits && msg.Wait > 0:
		return writeJSON(w, http.StatusAccepted,
			wire.Queued{Name: msg.Name, ID: key.id, PlaceTimeout: wire.Millis(s.opts.limits.placeTimeout)})
	case waits && s.isDraining(): // the place was given up, maybe before the store answered
		return errDraining()
	case errors.Is(err, driver.ErrHeld):
		return s.refusal(r.Context(), p, key.name, msg)
	case err != nil:
		return err
	}
	waited := max(0, h.said.Start.Left(arrived)) // not Sub: by the clock that saw less, so the client relies on no more
	waited -= waited / driver.Drift              // the client's clock may be slower
	return writeJSON(w, http.StatusOK, wire.Granted{
		Name: msg.Name, ID: h.ID(), Token: h.said.Token, Tokens: h.said.Tokens,
		TTL: int64(h.said.TTL / time.Millisecond), Waited: int64(waited / time.Millisecond),
	})
}

// acquisition returns what a message asks the store for.
func (s *Service) acquisition(p *Principal, msg *wire.Acquire) (key placeKey, req driver.Request, err error) {
	ref, refErr := refOf(p, wire.Lease{Name: msg.Name, ID: cmp.Or(msg.ID, rand.Text())})
	holder, holderErr := holderOf(msg.Process)
	if msg.Reserve {
		err, holder.Kind = s.checkReservation(msg), driver.KindReserved
	}
	ttl, ttlErr := ttlOf(msg.TTL)
	switch {
	case msg.Wait < 0 || msg.MinHold < 0 || msg.Tokens < 0:
		err = invalidf("wait_ms, min_hold_ms and tokens can't be negative")
	case msg.Tokens > wire.MaxTokens:
		err = invalidf("tokens: it can't be greater than %d", wire.MaxTokens)
	case msg.Shared && !s.info.Shared, msg.Slots > 0 && !s.info.Slots:
		err = invalidf("this store has no locks of this kind")
	}
	if err := cmp.Or(refErr, holderErr, err, ttlErr, s.checkTTL(ttl)); err != nil {
		return key, req, err
	}
	req = driver.Request{
		Name: ref.name, ID: newGrantID(ref.id.client).String(), TTL: ttl,
		Shared: msg.Shared, Slots: msg.Slots, MinHold: wire.Duration(msg.MinHold), Tokens: msg.Tokens,
		Detached: true, // the hold outlives this replica
		Holder:   holder,
	}
	return placeKey{ref.name, ref.id.client}, req, req.Check()
}

// errQueued answers a poll whose place is still in the queue. To the Authorizer it is an ErrHeld.
var errQueued = fmt.Errorf("%w: the request waits", driver.ErrHeld)

// get returns the hold that an acquisition gets: the one that its client has, or a new one.
func (s *Service) get(ctx context.Context, key placeKey, namespace string, req driver.Request, msg *wire.Acquire,
	arrived driver.Instant) (*grant, error) {
	wait := min(wire.Duration(msg.Wait), s.opts.limits.wait)
	if wait > 0 && s.isBehindOthers(key) {
		// The client must not wait behind others for the end of a hold of its own.
		if h, err := s.regain(ctx, key, req); !errors.Is(err, driver.ErrLost) {
			return h, err
		}
	}
	p, me, err := s.attach(key, namespace, req, wait > 0, arrived)
	if err != nil {
		return nil, err
	}
	defer s.detach(p, me)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case a := <-me.ended:
			return a.grant, a.err
		case <-timer.C:
			s.over(p, me)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isBehindOthers reports whether an acquisition would be a new one in a queue.
func (s *Service) isBehindOthers(key placeKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[key] == nil && len(s.queues[key.name]) > 0 && !s.isDraining() && !s.withdrawn.has(key)
}

// attach begins a poll of an acquisition, whose place may be a new one.
func (s *Service) attach(key placeKey, namespace string, req driver.Request, waits bool,
	arrived driver.Instant) (*place, *poll, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[key]
	isNew := p == nil
	switch {
	case s.isDraining():
		return nil, nil, errDraining()
	case s.withdrawn.has(key):
		return nil, nil, wire.NewProblem(wire.ProblemWithdrawn, "the client has withdrawn this acquisition, or released its hold; begin another one, with a new id", 0)
	case isNew && waits && s.isFullLocked(namespace):
		return nil, nil, wire.NewProblem(wire.ProblemQuota, "too many requests wait at this replica", time.Second)
	case isNew:
		p = s.newPlaceLocked(key, namespace, req, waits)
	case !p.fits(req):
		return nil, nil, wire.NewProblem(wire.ProblemKind, "another request with this id is under way, with other shared, "+
			"slots, min_hold_ms, tokens or reserve; send the same ones, or use another id", 0)
	}
	me := &poll{arrived: arrived, ended: make(chan result, 1)}
	p.beginLocked(me)
	switch {
	case isNew && waits:
		p.enqueueLocked(math.MaxInt)
	case isNew:
		p.onLocked(waiting.Turn)
	}
	s.polls++
	return p, me, nil
}

// beginLocked makes a poll the one that waits for the place. An older one ends: its client has sent
// the request again.
func (p *place) beginLocked(me *poll) {
	if p.poll != nil {
		p.answerLocked(result{err: wire.NewProblem(wire.ProblemRepeated, "the client has sent this request again meanwhile", 0)})
	}
	p.poll = me
	p.onLocked(waiting.PollCame)
}

// over notes that a poll has waited for as long as it may.
func (s *Service) over(p *place, me *poll) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.poll == me {
		p.onLocked(waiting.PollOver)
	}
}

// detach ends a poll. If it had no answer, its client has gone, and has placeTimeout to come back.
func (s *Service) detach(p *place, me *poll) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polls--
	if p.poll == me {
		p.poll = nil
		p.onLocked(waiting.PollGone)
	}
}

// isFullLocked reports whether nobody of a namespace may have one more place. The principals of a
// namespace have at most as many as are free, so they can't shut out those of others.
func (s *Service) isFullLocked(namespace string) bool {
	free := s.opts.limits.places - s.waits
	return free <= 0 || namespace != "" && s.waiting[namespace] >= free
}

// regain returns the hold that the client of an acquisition has already, from another replica or
// from an earlier request whose answer it did not get. If there is none, the error matches ErrLost,
// and the places are withdrawn that other replicas have for it in the store.
func (s *Service) regain(ctx context.Context, key placeKey, req driver.Request) (*grant, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := s.driver.Status(ctx, key.name)
	if err != nil {
		return nil, err
	}
	isSame := st.Shared == req.Shared && (st.Slots > 0) == (req.Slots > 0)
	h, err := findIn(st, func(h driver.Holding) bool {
		return isSame && grantID{client: key.id}.isFinal(h) && isReserved(h.Holder) == isReserved(req.Holder)
	})
	if err != nil {
		if err := s.withdrawPlaces(ctx, key, st); err != nil {
			return nil, err
		}
		return nil, driver.ErrLost
	}
	l := s.driver.Lease(key.name, h.ID, req.TTL)
	answer := s.driver.Renew(ctx, []driver.Lease{l})[0]
	if answer.Err != nil {
		return nil, answer.Err
	}
	return &grant{l, driver.Grant{Token: h.Token, Start: answer.Start, TTL: req.TTL}}, nil
}

// withdrawPlaces removes the places in the store that other replicas have for an acquisition. The
// client asks us now, so such a replica may be dead, and its place in the way of others.
func (s *Service) withdrawPlaces(ctx context.Context, key placeKey, st driver.Status) error {
	for _, w := range st.Waiters {
		if !key.isOf(w.ID) {
			continue
		}
		err := s.driver.Withdraw(ctx, key.name, w.ID)
		if err != nil && !errors.Is(err, errors.ErrUnsupported) { // then the store notices by itself
			return err
		}
	}
	return nil
}

// refusal returns the problem of a request that does not wait. It names the holders, unless the
// client does not ask, or the store does not say.
func (s *Service) refusal(ctx context.Context, p *Principal, name string, msg *wire.Acquire) error {
	problem := wire.NewProblem(wire.ProblemHeld, "", time.Second)
	if msg.Brief {
		return problem
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := s.driver.Status(ctx, name)
	if err != nil {
		return problem
	}
	st.Waiters = nil // there may be thousands
	problem.Holders = lockOf(p, st).Holders
	return problem
}

// withdraw has answered when nothing is left of the acquisition.
func (s *Service) withdraw(w http.ResponseWriter, r *http.Request, p *Principal, msg *wire.Lease) error {
	ref, err := refOf(p, *msg)
	if err != nil {
		return err
	}
	return s.act(w, r, p, &Action{Verb: VerbAcquire, Op: OpWithdraw, Name: msg.Name}, func(ctx context.Context) error {
		return s.takeBack(ctx, placeKey{ref.name, ref.id.client})
	})
}

// takeBack undoes an acquisition: what this replica has of it, and what others have left in the
// store. Behind a balancer, the client does not know which of them it asked.
func (s *Service) takeBack(ctx context.Context, key placeKey) error {
	if p := s.giveUp(key); p != nil {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.takeBackInStore(ctx, key)
}

// giveUp remembers that an acquisition is over. It returns the place that it has here, or nil.
func (s *Service) giveUp(key placeKey) *place {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.withdrawn.add(key)
	p := s.places[key]
	if p != nil {
		p.onLocked(waiting.ClientWithdrew)
	}
	return p
}

// takeBackInStore removes what other replicas have of an acquisition, and the hold whose answer the
// client did not get. MinHold does not keep it: the client has done nothing under it.
func (s *Service) takeBackInStore(ctx context.Context, key placeKey) error {
	st, err := s.driver.Status(ctx, key.name)
	if err != nil {
		return err
	}
	if err := s.withdrawPlaces(ctx, key, st); err != nil {
		return err
	}
	for _, h := range st.Holders {
		if !key.isOf(h.ID) {
			continue
		}
		if err := s.driver.Break(ctx, key.name, h.ID); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}
