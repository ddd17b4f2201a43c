package serve

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sniblock/snib/driver"
)

// A placeKey names an acquisition: the lock in the store, and who asks for it.
type placeKey struct{ name, id string }

// isOf reports whether a replica has made an id in the store for the acquisition.
func (k placeKey) isOf(inStore string) bool {
	id := parseID(inStore)
	return id.nonce != "" && id.client == k.id
}

// A place is an acquisition that goes through this replica. A request of the client is a poll of
// it. Between two polls it stays for [Options.PlaceTimeout].
type place struct {
	s         *Service
	key       placeKey
	namespace string         // the prefix of the names of the principal
	req       driver.Request // with the id in the store of the latest request, guarded by Service.mu

	ctx    context.Context // of the request that waits in the store
	cancel context.CancelCauseFunc

	ended chan struct{} // closed when neither the place nor the store has anything of it, or the client has the hold

	waits bool           // the place is in a queue
	since driver.Instant // when the place was made

	// Guarded by Service.mu.
	state    placeState
	poll     *poll       // nil: no client waits
	timer    *time.Timer // runs while no client waits
	grant    *grant
	err      error // of a place that has failed
	final    bool  // other replicas may hand the hold out, so only the client may end it
	isShown  bool  // the store shows the holder of the request, and not one that is pending
	gaveUp   error // why nobody wants the place any more; nil: somebody does
	told     bool  // the store has said that the lock is held, or waitErr says why it grants nothing
	waitErr  error
	settling bool // a poll makes the hold final
}

// A placeState is how far an acquisition is.
type placeState uint8

const (
	queued    placeState = iota // behind another one of this replica, or in the store
	granted                     // the store has granted the lock
	failed                      // with an error
	collected                   // the client has the hold, or the place was given up
)

// A poll is a request of a client that waits for its place.
type poll struct {
	wake chan struct{} // capacity 1
}

// A queue has the places of one name, in the order of their arrival. The first one waits in the
// store. It is guarded by Service.mu.
type queue struct {
	places []*place
}

// errWithdrawn means that the client has withdrawn the acquisition.
const errWithdrawn driver.Sentinel = "the request was withdrawn"

// errAbandoned means that the client did not send its request again in time.
const errAbandoned driver.Sentinel = "the client has gone"

// newPlaceLocked adds a place, and lets it ask the store. A place that waits is queued.
func (s *Service) newPlaceLocked(key placeKey, namespace string, req driver.Request, waits bool) *place {
	p := &place{s: s, key: key, namespace: namespace, req: req, waits: waits, since: driver.Now(), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	s.places[key] = p
	s.waiting[namespace]++
	if waits {
		p.enqueueLocked(false)
	} else {
		s.running.Go(p.tryOnce)
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

// enqueueLocked puts a place into the queue of its name: at the end, or before all but the one
// that the store is being asked for.
func (p *place) enqueueLocked(first bool) {
	s, name := p.s, p.key.name
	q := s.queues[name]
	if q == nil {
		q = new(queue)
		s.queues[name] = q
		s.running.Go(func() { s.serveQueue(name, q) })
	}
	p.state = queued
	if first && len(q.places) > 0 {
		q.places = slices.Insert(q.places, 1, p)
	} else {
		q.places = append(q.places, p)
	}
}

// requeueLocked lets a place begin again whose hold has ended before its client came for it.
func (p *place) requeueLocked() {
	switch {
	case p.gaveUp != nil:
		p.state = queued
		p.collectLocked()
	case p.waits:
		p.enqueueLocked(true)
	default: // the lock may be free
		p.state = queued
		p.s.running.Go(p.tryOnce)
	}
}

// headLocked returns the place that is first in the queue of p: its request is in the store.
func (p *place) headLocked() *place {
	if q := p.s.queues[p.key.name]; q != nil && slices.Contains(q.places, p) {
		return q.places[0]
	}
	return p
}

// serveQueue lets the places of a queue wait in the store, one after the other, until the queue is
// empty.
func (s *Service) serveQueue(name string, q *queue) {
	for {
		s.mu.Lock()
		if len(q.places) == 0 {
			delete(s.queues, name)
			s.mu.Unlock()
			return
		}
		head := q.places[0]
		s.mu.Unlock()

		h, final, err := head.acquire()
		s.mu.Lock()
		q.places = slices.DeleteFunc(q.places, func(p *place) bool { return p == head })
		head.settleLocked(h, final, err)
		s.mu.Unlock()
	}
}

// retryPause is how long a place waits before it asks a store again that was unavailable.
const retryPause = 500 * time.Millisecond

// acquire asks the store for the lock. The first request does not wait: it is not given up, so its
// grant is final. While the store is unavailable, it is repeated: a request that waits in the store
// would wait for the end of a hold that the client has already.
func (p *place) acquire() (_ *grant, final bool, err error) {
	h, err := p.try()
	for errors.Is(err, driver.ErrUnavailable) {
		p.noteWait(err)
		select {
		case <-time.After(retryPause):
			h, err = p.try()
		case <-p.ctx.Done():
			return nil, false, context.Cause(p.ctx)
		}
	}
	if !errors.Is(err, driver.ErrHeld) {
		return h, true, err
	}
	p.noteWait(nil)
	req := p.newRequest()
	req.OnWait, req.Holder.Kind = p.noteWait, driver.KindPending
	lease, err := p.s.driver.Acquire(p.ctx, req)
	if err != nil {
		return nil, false, err
	}
	return newGrant(req, lease), false, nil
}

// try asks the store for the lock without waiting for it. The client may have the lock already, if
// it sends a request again whose answer it did not get. Then the store would grant it another slot,
// and refuse everything else.
func (p *place) try() (*grant, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	ctx, mayShare := context.WithoutCancel(p.ctx), p.req.Shared || p.req.Slots > 0
	if mayShare {
		if h, err := p.s.regain(ctx, p.key, p.req); !errors.Is(err, driver.ErrLost) {
			return h, err
		}
	}
	req := p.newRequest()
	req.NoWait = true
	lease, err := p.s.driver.Acquire(ctx, req)
	switch {
	case err == nil:
		return newGrant(req, lease), nil
	case mayShare || !errors.Is(err, driver.ErrHeld):
		return nil, err
	}
	if h, err := p.s.regain(ctx, p.key, req); !errors.Is(err, driver.ErrLost) {
		return h, err
	}
	return nil, driver.ErrHeld
}

// newRequest returns a request to the store, with an id that no other one has.
func (p *place) newRequest() driver.Request {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.req.ID = newGrantID(p.key.id).String()
	return p.req
}

// noteWait is the OnWait of a request in the store.
func (p *place) noteWait(err error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.told && p.waitErr == nil && err == nil {
		return
	}
	p.told, p.waitErr = true, err
	for _, other := range p.s.queues[p.key.name].places {
		other.wakeLocked()
	}
}

// tryOnce is serveQueue for a place that does not wait.
func (p *place) tryOnce() {
	h, err := p.try()
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.settleLocked(h, true, err)
}

// wakeLocked wakes the poll, if there is one.
func (p *place) wakeLocked() {
	if p.poll == nil {
		return
	}
	select {
	case p.poll.wake <- struct{}{}:
	default:
	}
}

// settleLocked notes what came of the request in the store.
func (p *place) settleLocked(h *grant, final bool, err error) {
	switch {
	case err != nil:
		p.state, p.err = failed, err
		if p.gaveUp != nil || p.poll == nil { // the error may be out of date when the client comes back
			p.collectLocked()
		}
	case p.gaveUp != nil && (!final || errors.Is(p.gaveUp, errWithdrawn)):
		p.releaseLocked(h)
	default:
		p.state, p.grant, p.final, p.isShown = granted, h, final, final
		if p.gaveUp != nil { // the client may get the hold at another replica; else it lapses
			p.collectLocked()
		}
	}
	p.wakeLocked()
}

// collectLocked ends the place.
func (p *place) collectLocked() {
	if p.state == collected {
		return
	}
	p.state = collected
	if p.timer != nil {
		p.timer.Stop()
	}
	p.forgetLocked()
	p.cancel(nil)
	p.wakeLocked()
	close(p.ended)
}

// forgetLocked lets the client begin anew.
func (p *place) forgetLocked() {
	if p.s.places[p.key] != p {
		return
	}
	delete(p.s.places, p.key)
	if p.s.waiting[p.namespace]--; p.s.waiting[p.namespace] == 0 {
		delete(p.s.waiting, p.namespace)
	}
}

// releaseLocked releases a hold that nobody wants, and then ends the place.
func (p *place) releaseLocked(h *grant) {
	p.forgetLocked()                                  // the client may come back with a new place
	p.state, p.grant, p.settling = granted, nil, true // no poll touches it
	p.s.running.Go(func() {
		ctx, cancel := unbroken(context.Background())
		defer cancel()
		_ = h.Release(ctx) // if that fails, the hold lapses
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.collectLocked()
	})
}

// giveUpLocked ends a place that nobody wants any more. Why is errWithdrawn if the client says so;
// nil means that the service ends.
func (p *place) giveUpLocked(why error) {
	if why == nil {
		why = errDraining()
	}
	if p.gaveUp == nil || errors.Is(why, errWithdrawn) {
		p.gaveUp = why
	}
	p.cancel(why)
	p.wakeLocked()
	q := p.s.queues[p.key.name]
	switch {
	case p.state == collected, p.settling: // whoever settles it looks at gaveUp
	case p.state == granted && (!p.final || errors.Is(why, errWithdrawn)):
		p.releaseLocked(p.grant)
	case p.state == granted, p.state == failed:
		p.collectLocked()
	case q != nil && slices.Index(q.places, p) > 0: // the first one is served
		q.places = slices.DeleteFunc(q.places, func(other *place) bool { return other == p })
		p.collectLocked()
	}
}

// attachLocked makes a new poll the one that waits for the place. An older one ends: its client
// has sent the request again.
func (p *place) attachLocked() *poll {
	p.wakeLocked()
	p.poll = &poll{wake: make(chan struct{}, 1)}
	if p.timer != nil {
		p.timer.Stop()
	}
	return p.poll
}

// detachLocked ends a poll. If the client does not come back in time, the place is given up.
func (p *place) detachLocked(me *poll) {
	if p.poll != me {
		return
	}
	p.poll = nil
	if p.state == collected || p.gaveUp != nil {
		return
	}
	p.timer = time.AfterFunc(p.s.opts.PlaceTimeout, func() {
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		if p.poll == nil && p.state != collected {
			p.giveUpLocked(errAbandoned)
		}
	})
}

// aheadLocked returns how many places are before p in its queue.
func (p *place) aheadLocked() int {
	q := p.s.queues[p.key.name]
	if q == nil {
		return 0
	}
	return max(0, slices.Index(q.places, p))
}

// withdrawals are the acquisitions that clients have withdrawn: a request that comes late must not
// begin anew.
type withdrawals struct {
	at      map[placeKey]driver.Instant
	sweepAt int
}

// withdrawalTimeout is how long a withdrawal is remembered: longer than a request is under way.
const withdrawalTimeout = 2 * time.Minute

func (w *withdrawals) add(key placeKey) {
	now := driver.Now()
	if w.at == nil {
		w.at = map[placeKey]driver.Instant{}
	}
	if len(w.at) >= w.sweepAt {
		for key, at := range w.at {
			if now.Sub(at) > withdrawalTimeout {
				delete(w.at, key)
			}
		}
		w.sweepAt = max(1024, 2*len(w.at))
	}
	w.at[key] = now
}

func (w *withdrawals) has(key placeKey) bool {
	at, ok := w.at[key]
	return ok && driver.Now().Sub(at) <= withdrawalTimeout
}
