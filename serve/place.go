package serve

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/waiting"
)

// A placeKey names an acquisition: the lock in the store, and who asks for it.
type placeKey struct{ name, id string }

// isOf reports whether a replica has made an id in the store for the acquisition.
func (k placeKey) isOf(inStore string) bool {
	id := parseID(inStore)
	return id.nonce != "" && id.client == k.id
}

// A place is an acquisition that goes through this replica. A request of the client is a poll of
// it. Between two polls it stays for limits.placeTimeout. Package waiting decides what becomes
// of it.
type place struct {
	s         *Service
	key       placeKey
	namespace string         // the prefix of the names of the principal
	req       driver.Request // with the id in the store of the latest request, guarded by Service.mu

	ctx    context.Context // of the request that waits in the store
	cancel context.CancelCauseFunc

	ended chan struct{} // closed when neither the place nor the store has anything of it, or the client has the hold

	since driver.Instant // when the place was made

	// Guarded by Service.mu.
	state   waiting.State
	poll    *poll       // nil: no client waits
	timer   *time.Timer // runs while no client waits
	grant   *grant
	err     error // of the last request to the store
	waitErr error // why the store grants nothing; nil: the lock is held
}

// A poll is a request of a client that waits for its place.
type poll struct {
	arrived driver.Instant
	ended   chan result // capacity 1
}

// A result ends a poll: with a hold, or with an error, such as errQueued.
type result struct {
	grant *grant
	err   error
}

// errGivenUp ends a request that waits in the store for a place which nobody wants any more.
const errGivenUp driver.Sentinel = "nobody wants the place any more"

// newPlaceLocked adds a place, which is queued if it waits. The caller attaches a poll.
func (s *Service) newPlaceLocked(key placeKey, namespace string, req driver.Request, waits bool) *place {
	p := &place{s: s, key: key, namespace: namespace, req: req, since: driver.Now(), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	p.state.Waits = waits
	s.places[key] = p
	if waits {
		s.waits++
		s.waiting[namespace]++
	}
	return p
}

// fits reports whether a request asks for what the place gets: its client would take a shared hold
// for an exclusive one. The TTL may be another one, because the answer has that of the hold.
func (p *place) fits(req driver.Request) bool {
	own := p.req
	return own.Shared == req.Shared && own.Slots == req.Slots && own.MinHold == req.MinHold &&
		own.Tokens == req.Tokens && isReserved(own.Holder) == isReserved(req.Holder)
}

// onLocked takes an event in, and does what follows from it. Nothing of that takes long.
func (p *place) onLocked(e waiting.Event) {
	next, actions := p.state.On(e)
	p.state = next
	for _, a := range actions {
		p.doLocked(a)
	}
}

func (p *place) doLocked(a waiting.Action) {
	s := p.s
	switch a {
	case waiting.Ask:
		waits := p.state.Waits
		s.running.Go(func() { p.ask(waits) })
	case waiting.Confirm:
		h, isShown, arrived := p.grant, p.state.Shown, p.poll.arrived
		s.running.Go(func() { p.confirm(h, isShown, arrived) })
	case waiting.Release:
		p.forgetLocked()
		id := p.grant.ID()
		s.running.Go(func() { p.release(id) })
	case waiting.Requeue:
		p.enqueueLocked(1)
	case waiting.Dequeue:
		p.dequeueLocked()
	case waiting.Cancel:
		p.cancel(errGivenUp)
	case waiting.StartTimer:
		p.timer = time.AfterFunc(s.opts.limits.placeTimeout, func() { p.on(waiting.ClientGone) })
	case waiting.StopTimer:
		p.stopTimerLocked()
	case waiting.AnswerGrant:
		p.answerLocked(result{grant: p.grant})
	case waiting.AnswerError:
		p.answerLocked(result{err: p.err})
	case waiting.AnswerQueued:
		p.answerLocked(result{err: p.whyLocked()})
	case waiting.AnswerWithdrawn:
		p.answerLocked(result{err: wire.NewProblem(wire.ProblemWithdrawn, "", 0)})
	case waiting.End:
		p.forgetLocked()
		p.stopTimerLocked()
		p.cancel(nil)
		close(p.ended)
	}
}

// on is onLocked for those who do not hold the mutex.
func (p *place) on(e waiting.Event) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.onLocked(e)
}

// answerLocked ends the poll.
func (p *place) answerLocked(a result) {
	p.poll.ended <- a
	p.poll = nil
}

// whyLocked returns why a poll ends without a hold.
func (p *place) whyLocked() error {
	if p.waitErr != nil && p.state.GaveUp != waiting.Drained {
		return p.waitErr
	}
	return errQueued
}

func (p *place) stopTimerLocked() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil // it is garbage while the client waits
	}
}

// forgetLocked lets the client begin anew.
func (p *place) forgetLocked() {
	if p.s.places[p.key] != p {
		return
	}
	delete(p.s.places, p.key)
	if !p.state.Waits {
		return
	}
	p.s.waits--
	if p.s.waiting[p.namespace]--; p.s.waiting[p.namespace] == 0 {
		delete(p.s.waiting, p.namespace)
	}
}

// enqueueLocked puts a place into the queue of its name, behind so many others. The first one asks
// the store.
func (p *place) enqueueLocked(behind int) {
	q := p.s.queues[p.key.name]
	p.s.queues[p.key.name] = slices.Insert(q, min(behind, len(q)), p)
	if len(q) == 0 {
		p.onLocked(waiting.Turn)
	} else if q[0].state.Told {
		p.waitErr = q[0].waitErr
		p.onLocked(waiting.StoreTold)
	}
}

// dequeueLocked takes a place out of its queue, whose first one then asks the store.
func (p *place) dequeueLocked() {
	name := p.key.name
	q := slices.DeleteFunc(p.s.queues[name], func(other *place) bool { return other == p })
	if len(q) == 0 {
		delete(p.s.queues, name)
		return
	}
	p.s.queues[name] = q
	if q[0].state.Phase == waiting.Queued {
		q[0].onLocked(waiting.Turn)
	}
}

// ask asks the store for the lock.
func (p *place) ask(waits bool) {
	h, event, err := p.acquire(waits)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if errors.Is(err, errGivenUp) {
		err = p.whyLocked() // to a client that has come back too late: its next request begins anew
	}
	p.grant, p.err = h, err
	p.onLocked(event)
	p.dequeueLocked()
}

// retryPause is how long a place waits before it asks a store again that was unavailable.
const retryPause = 500 * time.Millisecond

// acquire asks the store for the lock, and waits for it if the place waits. The first request does
// not wait: it is not given up, so its grant is final unless the client is away. While the store is
// unavailable, that request is repeated: one that waits in the store would wait for the end of a
// hold that the client has already.
func (p *place) acquire(waits bool) (*grant, waiting.Event, error) {
	h, event, err := p.try()
	for waits && errors.Is(err, driver.ErrUnavailable) {
		p.noteWait(err)
		select {
		case <-time.After(retryPause):
			h, event, err = p.try()
		case <-p.ctx.Done():
			return nil, waiting.StoreFailed, context.Cause(p.ctx)
		}
	}
	switch {
	case err == nil:
		return h, event, nil
	case !waits || !errors.Is(err, driver.ErrHeld):
		return nil, waiting.StoreFailed, err
	}
	p.noteWait(nil)
	req := p.newRequest()
	req.OnWait, req.Holder.Kind = p.noteWait, driver.KindPending
	lease, err := p.s.driver.Acquire(p.ctx, req)
	if err != nil {
		return nil, waiting.StoreFailed, err
	}
	return newGrant(req, lease), waiting.StorePromised, nil
}

// try asks the store for the lock without waiting for it. The client may have the lock already, if
// it sends a request again whose answer it did not get. Then the store would grant it another slot,
// and refuse everything else.
func (p *place) try() (*grant, waiting.Event, error) {
	if p.ctx.Err() != nil {
		return nil, waiting.StoreFailed, context.Cause(p.ctx)
	}
	ctx, mayShare := context.WithoutCancel(p.ctx), p.req.Shared || p.req.Slots > 0
	if mayShare {
		if h, err := p.s.regain(ctx, p.key, p.req); !errors.Is(err, driver.ErrLost) {
			return h, waiting.StoreGranted, err
		}
	}
	req := p.newRequest()
	req.NoWait = true
	lease, err := p.s.driver.Acquire(ctx, req)
	switch {
	case err == nil && req.Holder.Kind == driver.KindPending:
		return newGrant(req, lease), waiting.StorePromised, nil
	case err == nil:
		return newGrant(req, lease), waiting.StoreGranted, nil
	case mayShare || !errors.Is(err, driver.ErrHeld):
		return nil, waiting.StoreFailed, err
	}
	if h, err := p.s.regain(ctx, p.key, req); !errors.Is(err, driver.ErrLost) {
		return h, waiting.StoreGranted, err
	}
	return nil, waiting.StoreFailed, driver.ErrHeld
}

// newRequest returns a request to the store, with an id that no other one has. If the client of a
// place is away, the grant is pending: maybe the client does not come back.
func (p *place) newRequest() driver.Request {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.req.ID = newGrantID(p.key.id).String()
	req := p.req
	if p.state.Waits && p.poll == nil {
		req.Holder.Kind = driver.KindPending
	}
	return req
}

// noteWait is the OnWait of a request in the store. It tells all that wait behind it, too.
func (p *place) noteWait(err error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.state.Told && p.waitErr == nil && err == nil {
		return
	}
	for _, other := range p.s.queues[p.key.name] {
		other.waitErr = err
		other.onLocked(waiting.StoreTold)
	}
}

// confirm makes a hold final, and its lease as young as the request whose answer it is. The client
// counts the TTL from when it sent the request, which has arrived since. So a lease that began
// before is renewed. After an error the next poll confirms the hold again: no other replica hands
// out one that is pending.
func (p *place) confirm(h *grant, isShown bool, arrived driver.Instant) {
	start, err := p.confirmInStore(h, isShown, arrived)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.err = err
	switch {
	case errors.Is(err, driver.ErrLost):
		p.onLocked(waiting.GrantLost)
	case err != nil:
		p.onLocked(waiting.ConfirmFailed)
	default:
		h.said.Start = start
		p.onLocked(waiting.Confirmed)
	}
}

func (p *place) confirmInStore(h *grant, isShown bool, arrived driver.Instant) (driver.Instant, error) {
	ctx, cancel := bounded(context.Background())
	defer cancel()
	if !isShown {
		if err := h.SetHolder(ctx, p.req.Holder); err != nil {
			return driver.Instant{}, err
		}
	}
	if !h.said.Start.Before(arrived) {
		return h.said.Start, nil
	}
	answer := p.s.driver.Renew(ctx, []driver.Lease{h.Lease})[0]
	return answer.Start, answer.Err
}

// release ends a hold that nobody wants, and that its MinHold need not keep: nothing was done under
// it.
func (p *place) release(id string) {
	ctx, cancel := bounded(context.Background())
	defer cancel()
	_ = p.s.driver.Break(ctx, p.key.name, id) // if that fails, the hold lapses
	p.on(waiting.Released)
}

// withdrawals are the acquisitions that clients have withdrawn, or whose holds they have released.
// A request that comes late must not begin anew.
type withdrawals struct {
	at    map[placeKey]driver.Instant
	order []placeKey // the oldest first
}

// withdrawalTimeout is how long a withdrawal is remembered: longer than a request is under way.
const withdrawalTimeout = 2 * time.Minute

// maxWithdrawals bounds the memory for them: clients make them up.
const maxWithdrawals = 50_000

// add notes a withdrawal. One that is repeated is as old as the first: nothing was sent in between.
func (w *withdrawals) add(key placeKey) {
	for len(w.order) > 0 && (len(w.order) >= maxWithdrawals || !w.has(w.order[0])) {
		delete(w.at, w.order[0])
		w.order = w.order[1:]
	}
	if w.has(key) {
		return
	}
	if w.at == nil {
		w.at = map[placeKey]driver.Instant{}
	}
	w.at[key] = driver.Now()
	w.order = append(w.order, key)
}

func (w *withdrawals) has(key placeKey) bool {
	at, ok := w.at[key]
	return ok && driver.Now().Sub(at) <= withdrawalTimeout
}
