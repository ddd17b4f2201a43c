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
		Verb: VerbAcquire, Op: OpAcquire, Name: msg.Name, Owner: key.client, Attempt: key.attempt, TTL: req.TTL, MinHold: req.MinHold,
		Wait: msg.Wait > 0, PlaceTimeout: s.opts.PlaceTimeout,
	}
	if msg.Reserve {
		label, _ := shown(req.Holder)
		action.Verb, action.Why = VerbReserve, label.Label
	}
	end, err := s.opts.Access.Begin(r.Context(), p, action)
	if err != nil {
		return err
	}
	c, err := s.get(r.Context(), key, req, &msg, arrived)
	outcome := Outcome{Err: err}
	if err == nil {
		outcome.Token = c.token
	}
	if end != nil {
		if refused := end(outcome); refused != nil && err == nil {
			ctx, cancel := unbroken(r.Context())
			defer cancel()
			_ = c.lease.Release(ctx) // otherwise it lapses
			return refused
		}
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
	grant := c.lease.Grant()
	waited := max(0, c.start.Left(arrived)) // not Sub: by the clock that saw less, so the client relies on no more
	return writeJSON(w, http.StatusOK, wire.Granted{
		Name: msg.Name, Owner: c.owner, Token: c.token, Tokens: grant.Tokens,
		TTL: int64(c.ttl / time.Millisecond), Waited: int64(waited / time.Millisecond),
	})
}

// acquisition returns what a message asks the store for.
func (s *Service) acquisition(p *Principal, msg *wire.Acquire) (placeKey, driver.Request, error) {
	none := func(err error) (placeKey, driver.Request, error) { return placeKey{}, driver.Request{}, err }
	name, err := storeName(p, msg.Name)
	if err != nil {
		return none(err)
	}
	if msg.Owner == "" {
		msg.Owner, msg.First = rand.Text(), true
	}
	if err := errors.Join(checkOwner(msg.Owner), checkAttempt(msg.Attempt), checkLabel(msg.Label), checkText("host", msg.Host, wire.MaxLabel)); err != nil {
		return none(err)
	}
	if msg.Reserve {
		if err := s.checkReservation(msg); err != nil {
			return none(err)
		}
	}
	ttl, err := ttlOf(msg.TTL)
	if err != nil {
		return none(err)
	}
	fencing, known := wire.Strength(msg.Fencing)
	switch {
	case msg.Fencing != "" && !known:
		return none(invalidf("fencing: it must be none, clock or durable"))
	case fencing > max(s.info.Fencing, s.info.FencingOnDemand):
		return none(invalidf("fencing: this store does not have %s tokens", fencing))
	case msg.Wait < 0 || msg.MinHold < 0 || msg.Tokens < 0 || msg.PID < 0:
		return none(invalidf("wait_ms, min_hold_ms, tokens and pid can't be negative"))
	case msg.Tokens > wire.MaxTokens:
		return none(invalidf("tokens: it can't be greater than %d", wire.MaxTokens))
	case msg.Shared && !s.info.Shared, msg.Slots > 0 && !s.info.Slots:
		return none(invalidf("this store has no locks of this kind"))
	}
	if err := s.checkTTL(ttl); err != nil {
		return none(err)
	}
	key := placeKey{name, parseOwner(msg.Owner).client, msg.Attempt}
	req := driver.Request{
		Name: name, Owner: newOwnerID(key.client, key.attempt).String(), TTL: ttl,
		Shared: msg.Shared, Slots: msg.Slots, MinHold: wire.Duration(msg.MinHold), Tokens: msg.Tokens, Fencing: fencing,
		Detached: true, // the hold outlives this replica
		Holder:   driver.Holder{Host: msg.Host, PID: msg.PID, Label: msg.Label},
	}
	return key, req, req.Check()
}

// A taken is a hold that a client gets.
type taken struct {
	*cached
	owner string         // in the store
	start driver.Instant // of the lease, at or before the store's
}

// A waitingError is the answer to a poll whose place is still in the queue.
type waitingError struct{ ahead int }

func (e *waitingError) Error() string { return "the request waits" }

// Is makes it an ErrHeld to the Authorizer.
func (e *waitingError) Is(target error) bool { return target == driver.ErrHeld }

// get returns the hold that an acquisition gets: the one that its client has, or a new one.
func (s *Service) get(ctx context.Context, key placeKey, req driver.Request, msg *wire.Acquire, arrived driver.Instant) (*taken, error) {
	wait := min(wire.Duration(msg.Wait), s.opts.MaxWait)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places[key] == nil && !msg.First {
		s.mu.Unlock()
		c, err := s.resume(ctx, key, req)
		s.mu.Lock()
		if c != nil || err != nil {
			return c, err
		}
	}
	p, err := s.placeLocked(key, req, wait > 0)
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
func (s *Service) placeLocked(key placeKey, req driver.Request, waits bool) (*place, error) {
	p := s.places[key]
	switch {
	case s.draining:
		return nil, errDraining()
	case s.withdrawn.has(key):
		return nil, wire.NewProblem(wire.ProblemWithdrawn, "the client has withdrawn this attempt; begin another one", 0)
	case s.polls >= s.opts.MaxWaits, p == nil && len(s.places) >= s.opts.MaxWaits:
		return nil, wire.NewProblem(wire.ProblemQuota, "too many requests wait at this replica", time.Second)
	case p == nil:
		return s.newPlaceLocked(key, req, waits), nil
	case !p.fits(req):
		return nil, wire.NewProblem(wire.ProblemKind, "another request of this owner and attempt is under way, with other shared, "+
			"slots, min_hold_ms, tokens, fencing or reserve; send the same ones, or use another attempt", 0)
	}
	return p, nil
}

// resume returns the hold that the client of an acquisition has from another replica, or from an
// earlier request. If it has none, resume ends the places that other replicas have for it.
func (s *Service) resume(ctx context.Context, key placeKey, req driver.Request) (*taken, error) {
	c, err := s.regain(ctx, key, req)
	if errors.Is(err, driver.ErrLost) {
		return nil, s.withdrawPlaces(ctx, key)
	}
	return c, err
}

// regain takes over the hold that the client of an acquisition has already. If it has none, the
// error matches ErrLost.
func (s *Service) regain(ctx context.Context, key placeKey, req driver.Request) (*taken, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	f, err := s.find(ctx, key.name, ownerID{client: key.client}, 0)
	switch {
	case err != nil:
		return nil, err
	case f.shared != req.Shared || f.slots != req.Slots || f.Holder.IsReserved() != req.Holder.IsReserved():
		return nil, driver.ErrLost // another kind: the store decides
	}
	c, err := s.awaitTakeOver(ctx, f, req.TTL, req.MinHold)
	if err != nil {
		return nil, err
	}
	return &taken{c, f.Owner, c.lease.Grant().Start}, nil
}

// withdrawPlaces removes the places in the store that other replicas have for an acquisition. The
// client asks us now, so such a replica may be dead, and its place in the way of others.
func (s *Service) withdrawPlaces(ctx context.Context, key placeKey) error {
	d, ok := s.driver.(driver.Withdrawer)
	if !ok {
		return nil // the store notices by itself
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	st, err := s.driver.Status(ctx, key.name)
	if err != nil {
		return err
	}
	for _, w := range st.Waiters {
		if !parseOwner(w.Owner).isOf(key) {
			continue
		}
		if err := d.Withdraw(ctx, key.name, w.Owner); err != nil {
			return err
		}
	}
	return nil
}

// awaitLocked waits until a place has its hold, or the poll ends.
func (s *Service) awaitLocked(ctx context.Context, p *place, me *poll, wait time.Duration, arrived driver.Instant) (*taken, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for over := wait == 0; ; {
		c, ended, err := p.lookLocked(me, over, arrived)
		if ended {
			return c, err
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
func (p *place) lookLocked(me *poll, over bool, arrived driver.Instant) (_ *taken, ended bool, _ error) {
	for p.state == granted && !p.settling && p.poll == me {
		if c, err := p.takeLocked(arrived); c != nil || err != nil {
			return c, true, err
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
func (p *place) takeLocked(arrived driver.Instant) (*taken, error) {
	s, lease, labelled := p.s, p.lease, p.labelled
	p.settling = true
	s.mu.Unlock()
	start, err := p.confirm(lease, labelled, arrived)
	s.mu.Lock()
	p.settling = false
	switch {
	case errors.Is(err, driver.ErrLost):
		p.lease, p.final = nil, false
		p.requeueLocked()
		return nil, nil
	case errors.Is(p.gaveUp, errWithdrawn):
		p.releaseLocked(lease)
		return nil, nil
	}
	p.final = true // even after an error: the label may be either
	if err != nil {
		if p.gaveUp != nil { // whoever gave it up left it to us, and no poll comes again
			p.collectLocked()
		}
		p.wakeLocked() // a repetition of the request may wait for us
		return nil, err
	}
	c := s.keep(p.req, lease)
	s.leases.renewed(c, start)
	p.collectLocked()
	return &taken{c, p.req.Owner, start}, nil
}

// confirm makes a hold final, and returns the start of its lease. The client counts the TTL from
// when it sent its request, which has arrived since. So a lease that began before is renewed. After
// an error the next poll confirms the hold again: under waitingLabel no other replica would see it.
func (p *place) confirm(lease driver.Lease, labelled bool, arrived driver.Instant) (driver.Instant, error) {
	ctx, cancel := unbroken(context.Background())
	defer cancel()
	if !labelled {
		if err := lease.SetLabel(ctx, p.req.Holder.Label); err != nil {
			return driver.Instant{}, err
		}
	}
	start := lease.Grant().Start
	if !start.Before(arrived) {
		return start, nil
	}
	answer := p.s.driver.Renew(ctx, []driver.Lease{lease})[0]
	return answer.Start, answer.Err
}

// answerQueued answers a poll whose place is kept.
func (s *Service) answerQueued(w http.ResponseWriter, r *http.Request, p *Principal, key placeKey, msg *wire.Acquire, ahead int) error {
	answer := wire.Queued{Name: msg.Name, Owner: key.client, PlaceTimeout: wire.Millis(s.opts.PlaceTimeout), Ahead: ahead}
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
	return s.toLock(p, st).Holders
}

// withdraw serves wire.Withdraw. When it has answered, nothing is left of the acquisition.
func (s *Service) withdraw(w http.ResponseWriter, r *http.Request, p *Principal) error {
	var msg wire.Withdraw
	if err := s.readBody(w, r, &msg); err != nil {
		return err
	}
	name, err := storeName(p, msg.Name)
	if err := errors.Join(err, checkOwner(msg.Owner), checkAttempt(msg.Attempt)); err != nil {
		return err
	}
	key := placeKey{name, parseOwner(msg.Owner).client, msg.Attempt}
	return s.act(w, r, p, Action{Verb: VerbAcquire, Op: OpWithdraw, Name: msg.Name, Owner: key.client, Attempt: key.attempt}, func(ctx context.Context) error {
		return s.takeBack(ctx, key)
	})
}

// takeBack undoes an acquisition: what this replica has of it, and what others have left in the
// store. Behind a balancer, the client does not know which of them it asked.
func (s *Service) takeBack(ctx context.Context, key placeKey) error {
	s.mu.Lock()
	if key.attempt != "" {
		s.withdrawn.add(key)
	}
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
	if err := s.withdrawPlaces(ctx, key); err != nil {
		return err
	}
	return s.takeBackHold(ctx, key)
}

// takeBackHold releases the hold of an acquisition whose answer the client did not get.
func (s *Service) takeBackHold(ctx context.Context, key placeKey) error {
	st, err := s.driver.Status(ctx, key.name)
	if err != nil {
		return err
	}
	for _, h := range st.Holders {
		o := parseOwner(h.Owner)
		if !o.isOf(key) {
			continue
		}
		var err error
		if _, waits := withoutWaitingLabel(h.Holder); waits { // at another replica, or its label could not be changed
			err = s.breakFound(ctx, &found{h, key.name, st.Shared, st.Slots}, events.EndReleased)
		} else {
			err = s.end(ctx, ref{key.name, o, h.Token}, 0)
		}
		if err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}
