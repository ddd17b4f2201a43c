package etcdlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

const (
	// maxSleep bounds the sleep of monitorDeadline: Go's timers stop while the machine is
	// suspended.
	maxSleep = 250 * time.Millisecond

	// keepAlivesPerTTL is how many keep-alives are sent in the time that the session lasts
	// without one.
	keepAlivesPerTTL = 6

	// maxKeepAliveInterval bounds the interval, because cleanUp runs as often.
	maxKeepAliveInterval = 10 * time.Second

	// renewalAge is how old a keep-alive may be for a renewal to count from it, or for the grant of
	// a lease that can be handed over, which is renewed soon. In return, keep-alives for any number
	// of holds are sent no more often.
	renewalAge = 5 * time.Millisecond

	// grantAge is which part of the TTL it may be old for another grant, whose hold may be shorter
	// by this much.
	grantAge = 100

	// cleanupPeriod is how long an abandoned request may still be executed.
	cleanupPeriod = 10 * time.Minute
)

// A session is the etcd lease to which all keys of the driver are attached. It ends once, and
// for good.
//
// Three goroutines belong to it. runKeepAlive keeps the etcd lease alive. monitorDeadline ends
// the session by our own clock when that has failed, whatever runKeepAlive waits for.
// watchLeases learns from etcd when the key of a lease is deleted.
type session struct {
	d   *Driver
	id  clientv3.LeaseID
	ttl time.Duration

	ctx    context.Context // done when the session is over; the cause says why
	cancel context.CancelCauseFunc
	told   chan struct{} // closed when all leases have been told of that

	mu      sync.Mutex
	start   driver.Instant      // just before the latest answered keep-alive was sent
	failing time.Time           // when the first keep-alive failed since then; zero if none has
	leases  map[*lease]struct{} // held, as far as we know; to be told of the session's end
	// mustLapse is set if a lease ended with the session whose LockDelay has to keep others out.
	mustLapse bool
	pending   []*keepAlive  // requested and not answered yet
	unsent    *keepAlive    // the last one of those, if it was not sent yet
	sendNow   chan struct{} // of capacity 1
	// pendingCleanup has the keys that abandoned requests may still put.
	pendingCleanup map[string]leftover
	cleanupMu      sync.Mutex // held during cleanUp

	keyWatches keyWatches
}

// A leftover says when a key was added to pendingCleanup, and when it is to be deleted again.
type leftover struct{ added, due time.Time }

// A keepAlive is an answered keep-alive that was sent after a caller had requested it.
type keepAlive struct {
	done  chan struct{} // closed when it was answered, or the session is over
	start driver.Instant
	err   error
}

// openSession returns the driver's session, and begins one if there is none.
func (d *Driver) openSession(ctx context.Context) (*session, error) {
	if s := d.session.Load(); s != nil && s.err() == nil {
		return s, nil
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	select {
	case d.openSem <- struct{}{}:
		defer func() { <-d.openSem }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := d.session.Load(); s != nil {
		if s.err() == nil {
			return s, nil
		}
		<-s.told // or a renewal of all leases would not know of them
	}
	start := driver.Now() // before the request: the deadline must not be late
	granted, err := call(ctx, d, func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
		// Unlike the client's own call, this one is not repeated: it returns at once with the
		// reason why there is no connection.
		granted, err := etcdserverpb.NewLeaseClient(d.client.ActiveConnection()).LeaseGrant(ctx,
			&etcdserverpb.LeaseGrantRequest{TTL: int64(d.timeout / time.Second)})
		if err != nil && ctx.Err() == nil {
			err = d.unreachableError(ctx, err)
		}
		return granted, err
	})
	if err != nil {
		return nil, err
	}
	s := &session{
		d: d, id: clientv3.LeaseID(granted.ID), ttl: time.Duration(granted.TTL) * time.Second, start: start,
		told: make(chan struct{}), sendNow: make(chan struct{}, 1), pendingCleanup: map[string]leftover{},
		leases:     map[*lease]struct{}{},
		keyWatches: newKeyWatches(),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	d.session.Store(s)
	if !d.life.Go(s.runKeepAlive) || !d.life.Go(s.monitorDeadline) || !d.life.Go(s.watchLeases) {
		s.close(driver.ErrClosed)
		return nil, driver.ErrClosed
	}
	return s, nil
}

// failingSince returns when keep-alives began to fail, or the present time if the last one was
// answered. The time in which this process or its machine was stopped sends none, so it does not
// count.
func (s *session) failingSince() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing.IsZero() {
		return time.Now()
	}
	return s.failing
}

// recordFailure records that a keep-alive has failed.
func (s *session) recordFailure() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failing.IsZero() {
		s.failing = time.Now()
	}
}

// err returns why the session is over, or nil.
func (s *session) err() error { return context.Cause(s.ctx) }

// bound returns a context that ends with ctx or with the session, whichever comes first.
func (s *session) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(s.err()) })
	return ctx, func() { stop(); cancel(nil) }
}

// deadline returns when the session ends if no further keep-alive is answered. It is called
// with the mutex held.
func (s *session) deadline() driver.Instant {
	return s.start.Add(s.ttl - s.ttl/driver.Drift - driver.Margin)
}

// monitorDeadline ends the session at its deadline.
func (s *session) monitorDeadline() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := driver.Now()
		s.mu.Lock()
		end := s.deadline()
		s.mu.Unlock()
		if end.Reached(now) {
			// etcd may still have it, and other clients need not wait until it expires.
			s.close(fmt.Errorf("%w: its session is over: etcd has answered no keep-alive for %v", driver.ErrLost, s.ttl))
			return
		}
		timer.Reset(min(maxSleep, end.Left(now)))
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// terminate ends the session, and tells all leases and callers that depend on it.
func (s *session) terminate(why error) {
	s.mu.Lock()
	if s.err() != nil {
		s.mu.Unlock()
		return
	}
	for l := range s.leases {
		s.mustLapse = s.mustLapse || l.req.LockDelay > 0
	}
	leases, pending := s.leases, s.pending
	s.leases, s.pending = nil, nil
	s.cancel(why)
	s.mu.Unlock()
	for l := range leases {
		l.lose(why)
	}
	close(s.told)
	for _, ka := range pending {
		ka.finish(driver.Instant{}, why)
	}
}

// close ends the session, in etcd too. If one of its leases has a LockDelay, it lapses there.
func (s *session) close(why error) {
	s.terminate(why)
	s.mu.Lock()
	lapses := s.mustLapse
	s.mu.Unlock()
	if !lapses {
		s.d.revoke(s.id)
	}
}

// revoke ends an etcd lease at once, with all its keys. If the request does not reach etcd, the
// lease expires.
func (d *Driver) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, _ = d.client.Revoke(ctx, id) // see above
}

// register makes the session tell a lease of its end. It fails if the session is over.
func (s *session) register(l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.err(); err != nil {
		return err
	}
	s.leases[l] = struct{}{}
	s.scheduleWatch(l)
	return nil
}

// unregister removes a lease that is about to end, or has ended: neither the loss of its key nor
// the end of the session is news then.
func (s *session) unregister(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
	s.unwatch(l)
}

// requestKeepAlive requests a keep-alive that is sent from now on, or was sent less than maxAge
// ago.
func (s *session) requestKeepAlive(maxAge time.Duration) *keepAlive {
	s.mu.Lock()
	defer s.mu.Unlock()
	ka := &keepAlive{done: make(chan struct{})}
	if err := s.err(); err != nil || driver.Now().Sub(s.start) < maxAge {
		ka.finish(s.start, err)
		return ka
	}
	if s.unsent == nil {
		s.unsent = ka
		s.pending = append(s.pending, s.unsent)
		select {
		case s.sendNow <- struct{}{}:
		default:
		}
	}
	return s.unsent
}

func (ka *keepAlive) finish(start driver.Instant, err error) {
	ka.start, ka.err = start, err
	close(ka.done)
}

// wait returns the instant from which the session is known to live.
func (ka *keepAlive) wait(ctx context.Context) (driver.Instant, error) {
	select {
	case <-ka.done:
		return ka.start, ka.err
	case <-ctx.Done():
		return driver.Instant{}, context.Cause(ctx)
	}
}

// runKeepAlive sends keep-alives until the session is over, on one stream after the other.
func (s *session) runKeepAlive() {
	ctx, cancel := context.WithCancel(s.d.life.Context())
	defer cancel()
	for s.err() == nil {
		err := s.runStream(ctx)
		if isLeaseGone(err) {
			s.terminate(fmt.Errorf("%w: its session is over: etcd has ended it", driver.ErrLost))
			return
		}
		s.recordFailure()
		select {
		case <-s.ctx.Done():
		case <-time.After(min(retryDelay, s.ttl/20)):
		}
	}
}

// runStream sends keep-alives on one stream until that fails: one at once, one for each
// request, and one at regular intervals.
func (s *session) runStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := min(callTimeout, s.ttl/3)
	stopper := time.AfterFunc(limit, cancel) // it ends the stream, and the calls that wait for it
	defer stopper.Stop()
	stream, err := clientv3.RetryLeaseClient(s.d.client).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(min(s.ttl/keepAlivesPerTTL, maxKeepAliveInterval))
	defer tick.Stop()
	for {
		if err := s.sendKeepAlive(stream); err != nil {
			return err
		}
		stopper.Stop()
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.sendNow:
		case <-tick.C:
			s.d.life.Go(s.cleanUp)
		}
		stopper.Reset(limit)
	}
}

// sendKeepAlive sends one keep-alive, which answers all earlier requests. If it fails, a later
// one answers them.
func (s *session) sendKeepAlive(stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	s.mu.Lock()
	pending := s.pending
	s.pending, s.unsent = nil, nil
	s.mu.Unlock()
	start := driver.Now() // before the request: the deadline must not be late
	err := s.roundTrip(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ended := s.err(); {
	case ended != nil:
		start, err = driver.Instant{}, ended
	case err != nil:
		s.pending = append(pending, s.pending...)
		return err
	default:
		s.start, s.failing = start, time.Time{}
	}
	for _, ka := range pending {
		ka.finish(start, err)
	}
	return err
}

func (s *session) roundTrip(stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	return err
}

// addCleanup records a key that an abandoned request may still put: the member that received it
// may hang, and continue later. If the key appears, it is deleted.
func (s *session) addCleanup(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err() == nil {
		s.pendingCleanup[key] = leftover{added: time.Now()}
	}
}

// cleanUp deletes the keys of pendingCleanup that are due.
func (s *session) cleanUp() {
	if !s.cleanupMu.TryLock() {
		return // the last call still runs
	}
	defer s.cleanupMu.Unlock()
	var due []string
	s.mu.Lock()
	for key, l := range s.pendingCleanup {
		if !l.due.After(time.Now()) {
			due = append(due, key)
		}
	}
	s.mu.Unlock()
	_ = inBatches(due, s.deleteKeys) // after a failure, the next call tries again
}

// deleteKeys deletes keys of pendingCleanup in one transaction. It then forgets those that no
// request can put any more. The others are due at growing intervals, so that many cost little.
func (s *session) deleteKeys(keys []string) error {
	sent := time.Now()
	ops := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		ops[i] = clientv3.OpDelete(key)
	}
	if _, err := s.d.commit(s.ctx, nil, ops, nil); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		l := s.pendingCleanup[key]
		age := sent.Sub(l.added)
		if l.due = sent.Add(age / 8); age > cleanupPeriod {
			delete(s.pendingCleanup, key)
		} else {
			s.pendingCleanup[key] = l
		}
	}
	return nil
}
