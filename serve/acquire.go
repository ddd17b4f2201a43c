package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/events"
)

// acquire serves wire.Acquire.
func (s *Service) acquire(w http.ResponseWriter, r *http.Request, p *Principal) error {
	arrived := driver.Now()
	var msg wire.Acquire
	if err := s.readBody(w, r, &msg); err != nil {
		return err
	}
	key, req, err := s.acquisition(p, &msg)
	if err != nil {
		return err
	}
	action := Action{
		Verb: VerbAcquire, Op: OpAcquire, Name: msg.Name, TTL: req.TTL, MinHold: req.MinHold,
	}
	if msg.Reserve {
		action.Verb, action.Why = VerbReserve, msg.Label
	}
	end, err := s.opts.Access.Begin(r.Context(), p, action)
	if err != nil {
		return err
	}
	h, err := s.get(r.Context(), key, p.Prefix, req, &msg, arrived)
	outcome := Outcome{Err: err}
	if err == nil {
		outcome.Token = h.token
	}
	if end != nil {
		end(outcome)
	}
	var waits *waitingError
	switch {
	case errors.As(err, &waits):
		return s.answerQueued(w, r, p, key, &msg, waits.ahead)
	case errors.Is(err, driver.ErrHeld):
		return s.refusal(r.Context(), p, key.name, &msg)
	case err != nil:
		return err
	}
	waited := max(0, h.start.Left(arrived)) // not Sub: by the clock that saw less, so the client relies on no more
	return writeJSON(w, http.StatusOK, wire.Granted{
		Name: msg.Name, ID: h.ID(), Token: h.token, Tokens: h.tokens,
		TTL: int64(h.ttl / time.Millisecond), Waited: int64(waited / time.Millisecond),
	})
}

// acquisition returns what a message asks the store for.
func (s *Service) acquisition(p *Principal, msg *wire.Acquire) (placeKey, driver.Request, error) {
	none := func(err error) (placeKey, driver.Request, error) { return placeKey{}, driver.Request{}, err }
	name, err := storeName(p, msg.Name)
	if err != nil {
		return none(err)
	}
	if msg.ID == "" {
		msg.ID = rand.Text()
	}
	id, err := checkID(msg.ID)
	if err != nil {
		return none(err)
	}
	holder, err := holderOf(msg.Process)
	if err != nil {
		return none(err)
	}
	if msg.Reserve {
		if err := s.checkReservation(msg); err != nil {
			return none(err)
		}
		holder.Kind = driver.KindReserved
	}
	ttl, err := ttlOf(msg.TTL)
	if err != nil {
		return none(err)
	}
	switch {
	case msg.Wait < 0 || msg.MinHold < 0 || msg.Tokens < 0:
		return none(invalidf("wait_ms, min_hold_ms and tokens can't be negative"))
	case msg.Tokens > wire.MaxTokens:
		return none(invalidf("tokens: it can't be greater than %d", wire.MaxTokens))
	case msg.Shared && !s.info.Shared, msg.Slots > 0 && !s.info.Slots:
		return none(invalidf("this store has no locks of this kind"))
	}
	if err := s.checkTTL(ttl); err != nil {
		return none(err)
	}
	req := driver.Request{
		Name: name, ID: newGrantID(id.client).String(), TTL: ttl,
		Shared: msg.Shared, Slots: msg.Slots, MinHold: wire.Duration(msg.MinHold), Tokens: msg.Tokens,
		Detached: true, // the hold outlives this replica
		Holder:   holder,
	}
	return placeKey{name, id.client}, req, req.Check()
}

// A waitingError is the answer to a poll whose place is still in the queue.
type waitingError struct{ ahead int }

func (e *waitingError) Error() string { return "the request waits" }

// Is makes it an ErrHeld to the Authorizer.
func (e *waitingError) Is(target error) bool { return target == driver.ErrHeld }

// get returns the hold that an acquisition gets: the one that its client has, or a new one.
func (s *Service) get(ctx context.Context, key placeKey, namespace string, req driver.Request, msg *wire.Acquire, arrived driver.Instant) (*grant, error) {
	wait := min(wire.Duration(msg.Wait), s.opts.MaxWait)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places[key] == nil && wait > 0 && len(s.queueOfLocked(key.name)) > 0 && !s.draining && !s.withdrawn.has(key) {
		// The client must not wait behind others for the end of a hold of its own.
		s.mu.Unlock()
		h, err := s.regain(ctx, key, req)
		s.mu.Lock()
		if !errors.Is(err, driver.ErrLost) {
			return h, err
		}
	}
	p, err := s.placeLocked(key, namespace, req, wait > 0)
	if err != nil {
		return nil, err
	}
	me := p.attachLocked()
	defer p.detachLocked(me)
	s.polls++
	defer func() { s.polls-- }()
	return s.awaitLocked(ctx, p, me, wait, arrived)
}

// placeLocked returns the place of an acquisition, which may be a new one.
func (s *Service) placeLocked(key placeKey, namespace string, req driver.Request, waits bool) (*place, error) {
	p := s.places[key]
	switch {
	case s.draining:
		return nil, errDraining()
	case s.withdrawn.has(key):
		return nil, wire.NewProblem(wire.ProblemWithdrawn, "the client has withdrawn this acquisition; begin another one, with a new id", 0)
	case p == nil && waits && s.isFullLocked(namespace):
		return nil, wire.NewProblem(wire.ProblemQuota, "too many requests wait at this replica", time.Second)
	case p == nil:
		return s.newPlaceLocked(key, namespace, req, waits), nil
	case !p.fits(req):
		return nil, wire.NewProblem(wire.ProblemKind, "another request with this id is under way, with other shared, "+
			"slots, min_hold_ms, tokens or reserve; send the same ones, or use another id", 0)
	}
	return p, nil
}

// isFullLocked reports whether nobody of a namespace may have one more place. The principals of a
// namespace have at most as many as are free, so they can't shut out those of others.
func (s *Service) isFullLocked(namespace string) bool {
	free := s.opts.MaxWaits - len(s.places)
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
	isSame := st.Shared == req.Shared && st.Slots == req.Slots
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
	return &grant{Lease: l, token: h.Token, start: answer.Start, ttl: req.TTL}, nil
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

// awaitLocked waits until a place has its hold, or the poll ends.
func (s *Service) awaitLocked(ctx context.Context, p *place, me *poll, wait time.Duration, arrived driver.Instant) (*grant, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := wait == 0; ; {
		h, ended, err := p.lookLocked(me, over, arrived)
		if ended {
			return h, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.mu.Unlock()
		select {
		case <-me.wake:
		case <-timer.C:
			over = true
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
}

// lookLocked returns whether a poll ends, and how. Over means that it has waited for as long as it
// may. It then ends once the store has said that the lock is held.
func (p *place) lookLocked(me *poll, over bool, arrived driver.Instant) (_ *grant, ended bool, _ error) {
	for p.state == granted && !p.settling && p.poll == me {
		if h, err := p.takeLocked(arrived); h != nil || err != nil {
			return h, true, err
		}
	}
	head := p.headLocked()
	switch {
	case p.poll != me:
		return nil, true, wire.NewProblem(wire.ProblemRepeated, "the client has sent this request again meanwhile", 0)
	case errors.Is(p.gaveUp, errWithdrawn):
		return nil, true, wire.NewProblem(wire.ProblemWithdrawn, "", 0)
	case p.state == failed:
		p.collectLocked()
		return nil, true, p.err
	case p.gaveUp != nil && p.waits:
		return nil, true, &waitingError{}
	case p.state == collected:
		return nil, true, driver.ErrUnavailable
	case !over || !p.waits || !head.told:
		return nil, false, nil
	case head.waitErr != nil:
		return nil, true, head.waitErr
	}
	return nil, true, &waitingError{p.aheadLocked()}
}

// takeLocked makes the hold that the store has granted final. It returns nothing if the hold has
// ended, or the client has withdrawn the request. It unlocks mu meanwhile.
func (p *place) takeLocked(arrived driver.Instant) (*grant, error) {
	s, h, isShown := p.s, p.grant, p.isShown
	p.settling = true
	s.mu.Unlock()
	start, err := p.confirm(h, isShown, arrived)
	s.mu.Lock()
	p.settling = false
	switch {
	case errors.Is(err, driver.ErrLost):
		p.grant, p.final = nil, false
		p.requeueLocked()
		return nil, nil
	case errors.Is(p.gaveUp, errWithdrawn):
		p.releaseLocked(h)
		return nil, nil
	}
	p.final = true // even after an error: the store may show either holder
	if err != nil {
		if p.gaveUp != nil { // whoever gave it up left it to us, and no poll comes again
			p.collectLocked()
		}
		p.wakeLocked() // a repetition of the request may wait for us
		return nil, err
	}
	h.start = start
	p.collectLocked()
	return h, nil
}

// confirm makes a hold final, and returns the start of its lease. The client counts the TTL from
// when it sent its request, which has arrived since. So a lease that began before is renewed. After
// an error the next poll confirms the hold again: no other replica hands out one that is pending.
func (p *place) confirm(h *grant, isShown bool, arrived driver.Instant) (driver.Instant, error) {
	ctx, cancel := unbroken(context.Background())
	defer cancel()
	if !isShown {
		if err := h.SetHolder(ctx, p.req.Holder); err != nil {
			return driver.Instant{}, err
		}
	}
	if !h.start.Before(arrived) {
		return h.start, nil
	}
	answer := p.s.driver.Renew(ctx, []driver.Lease{h.Lease})[0]
	return answer.Start, answer.Err
}

// answerQueued answers a poll whose place is kept.
func (s *Service) answerQueued(w http.ResponseWriter, r *http.Request, p *Principal, key placeKey, msg *wire.Acquire, ahead int) error {
	answer := wire.Queued{Name: msg.Name, ID: key.id, PlaceTimeout: wire.Millis(s.opts.PlaceTimeout), Ahead: ahead}
	if !msg.Brief && !s.isDraining() {
		answer.Holders = s.holders(r.Context(), p, key.name)
	}
	return writeJSON(w, http.StatusAccepted, answer)
}

// refusal returns the problem of a request that does not wait.
func (s *Service) refusal(ctx context.Context, p *Principal, name string, msg *wire.Acquire) error {
	problem := wire.NewProblem(wire.ProblemHeld, "", time.Second)
	if msg.Brief {
		return problem
	}
	problem.Holders = s.holders(ctx, p, name)
	for i, h := range problem.Holders {
		if i == 0 || h.Left < problem.RetryAfter {
			problem.RetryAfter = h.Left
		}
	}
	problem.RetryAfter = min(max(problem.RetryAfter, 1000), 30_000)
	return problem
}

// holders returns who holds a lock, or nothing if the store does not say.
func (s *Service) holders(ctx context.Context, p *Principal, name string) []wire.Holder {
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := s.driver.Status(ctx, name)
	if err != nil {
		return nil
	}
	st.Waiters = nil // there may be thousands
	return lockOf(p, st).Holders
}

// withdraw serves wire.Withdraw. When it has answered, nothing is left of the acquisition.
func (s *Service) withdraw(w http.ResponseWriter, r *http.Request, p *Principal) error {
	var msg wire.Withdraw
	if err := s.readBody(w, r, &msg); err != nil {
		return err
	}
	name, err := storeName(p, msg.Name)
	if err != nil {
		return err
	}
	id, err := checkID(msg.ID)
	if err != nil {
		return err
	}
	key := placeKey{name, id.client}
	return s.act(w, r, p, Action{Verb: VerbAcquire, Op: OpWithdraw, Name: msg.Name}, func(ctx context.Context) error {
		return s.takeBack(ctx, key)
	})
}

// takeBack undoes an acquisition: what this replica has of it, and what others have left in the
// store. Behind a balancer, the client does not know which of them it asked.
func (s *Service) takeBack(ctx context.Context, key placeKey) error {
	s.mu.Lock()
	s.withdrawn.add(key)
	p := s.places[key]
	if p != nil {
		p.giveUpLocked(errWithdrawn)
	}
	s.mu.Unlock()
	if p != nil {
		select {
		case <-p.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.takeBackInStore(ctx, key)
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
		if err := s.breakHolding(ctx, key.name, h, events.EndReleased); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}
