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
	// The clocks of client and server may differ in rate by one part in drift; a margin is for the rest. They are those of
	// package snib, which ends its holds in the same moment.
	drift  = 100
	margin = 2 * time.Millisecond

	// maxNap bounds the sleep of the watchman: Go's timers stand still while the machine sleeps.
	maxNap = 250 * time.Millisecond

	// beats is how many keep-alives are sent in the time that the session lasts without one.
	beats = 6

	// fresh is how old a keep-alive may be for a grant or a renewal to count from it. So much of its time a hold is short of,
	// and so rarely, however many there are, keep-alives are sent.
	fresh = 5 * time.Millisecond

	// doubtful is for how long a request that was given up is expected to come true yet.
	doubtful = 10 * time.Minute

	// sweeps bounds how many keys of doubtful requests are deleted at a time.
	sweeps = 100
)

// A session is the lease in etcd that all keys of the driver hang on. Once it is over it stays so.
//
// Three goroutines belong to it: one keeps the lease alive, one ends the session by our own clock
// when that has failed, whatever the first one waits for, and one has etcd tell when the key of a
// hold is deleted.
type session struct {
	d   *Driver
	id  clientv3.LeaseID
	ttl time.Duration

	life context.Context // done when the session is over, with the reason
	end  context.CancelCauseFunc

	mu    sync.Mutex
	start driver.Instant       // just before the latest keep-alive was sent that was answered
	holds map[*hold]struct{}   // to be told when it is over
	asked []*beat              // that are not answered yet
	open  *beat                // the last of them, if it was not sent yet
	kick  chan struct{}        // of one: send now
	doubt map[string]time.Time // keys that may be put yet by a request that was given up, and since when

	watched watched
}

// A beat is an answered keep-alive that was sent after somebody had asked for it.
type beat struct {
	done  chan struct{} // closed when it was answered, or the session is over
	start driver.Instant
	err   error
}

// open returns the driver's session, and begins one if there is none.
func (d *Driver) open(ctx context.Context) (*session, error) {
	if s := d.session.Load(); s != nil && s.lost() == nil {
		return s, nil
	}
	ctx, cancel := d.life.During(ctx)
	defer cancel()
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := d.session.Load(); s != nil && s.lost() == nil {
		return s, nil
	}
	start := driver.Now() // before the request: the deadline must not be late
	lease, err := call(ctx, d, func(ctx context.Context) (*etcdserverpb.LeaseGrantResponse, error) {
		// This call, unlike that of the client, is not repeated: it returns at once why there is
		// no connection.
		lease, err := etcdserverpb.NewLeaseClient(d.client.ActiveConnection()).LeaseGrant(ctx,
			&etcdserverpb.LeaseGrantRequest{TTL: int64(d.conf.timeout / time.Second)})
		if err != nil && ctx.Err() == nil {
			err = d.unreachable(ctx, err)
		}
		return lease, err
	})
	if err != nil {
		return nil, err
	}
	s := &session{
		d: d, id: clientv3.LeaseID(lease.ID), ttl: time.Duration(lease.TTL) * time.Second, start: start,
		kick: make(chan struct{}, 1), holds: map[*hold]struct{}{}, doubt: map[string]time.Time{},
		watched: watched{poke: make(chan struct{}, 1), byID: map[int64]*hold{}},
	}
	s.life, s.end = context.WithCancelCause(context.Background())
	d.session.Store(s)
	if !d.life.Go(s.keepAlive) || !d.life.Go(s.guard) || !d.life.Go(s.watchHolds) {
		s.lose(driver.ErrClosed)
		s.revoke()
		return nil, driver.ErrClosed
	}
	return s, nil
}

// lost says why the session is over, or is nil.
func (s *session) lost() error { return context.Cause(s.life) }

// within returns a context that ends with ctx or with the session, whichever comes first.
func (s *session) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(s.lost()) })
	return ctx, func() { stop(); cancel(nil) }
}

// deadline is when the session is over if no further keep-alive is answered. It is called with the mutex held.
func (s *session) deadline() driver.Instant { return s.start.Add(s.ttl - s.ttl/drift - margin) }

// guard ends the session at its deadline.
func (s *session) guard() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := driver.Now()
		s.mu.Lock()
		end := s.deadline()
		s.mu.Unlock()
		if end.Reached(now) {
			if s.lose(fmt.Errorf("%w: its session is over: etcd has answered no keep-alive for %v", driver.ErrLost, s.ttl)) {
				s.revoke() // in case it is there: others need not wait until it lapses
			}
			return
		}
		timer.Reset(min(maxNap, end.Left(now)))
		select {
		case <-timer.C:
		case <-s.life.Done():
			return
		}
	}
}

// lose ends the session, and tells all who hold something in it. It reports whether it was the first to do so.
func (s *session) lose(why error) bool {
	s.mu.Lock()
	if s.lost() != nil {
		s.mu.Unlock()
		return false
	}
	holds, asked := s.holds, s.asked
	s.holds, s.asked = nil, nil
	s.end(why)
	s.mu.Unlock()
	for h := range holds {
		h.lose(why)
	}
	for _, b := range asked {
		b.answer(driver.Instant{}, why)
	}
	return true
}

// revoke asks etcd to end the lease, and with it all keys on it, at once.
func (s *session) revoke() { s.d.revoke(s.id) }

// revoke ends a lease. If etcd does not hear of it, it lapses.
func (d *Driver) revoke(id clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	_, _ = d.client.Revoke(ctx, id) // see above
}

// adopt has the session tell a hold of its end. It does not if it is over.
func (s *session) adopt(h *hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.lost(); err != nil {
		return err
	}
	s.holds[h] = struct{}{}
	s.watchLater(h)
	return nil
}

// hush has nobody told any more that the key of a hold is gone.
func (s *session) hush(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatch(h)
}

// drop forgets a hold.
func (s *session) drop(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, h)
	s.unwatch(h)
}

// beat asks for a keep-alive that is sent from now on, or was just now.
func (s *session) beat() *beat {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &beat{done: make(chan struct{})}
	if err := s.lost(); err != nil || driver.Now().Sub(s.start) < fresh {
		b.answer(s.start, err)
		return b
	}
	if s.open == nil {
		s.open = b
		s.asked = append(s.asked, s.open)
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	return s.open
}

func (b *beat) answer(start driver.Instant, err error) {
	b.start, b.err = start, err
	close(b.done)
}

// wait returns from when on the session is known to live.
func (b *beat) wait(ctx context.Context) (driver.Instant, error) {
	select {
	case <-b.done:
		return b.start, b.err
	case <-ctx.Done():
		return driver.Instant{}, context.Cause(ctx)
	}
}

// keepAlive sends keep-alives until the session is over, on one stream after the other.
func (s *session) keepAlive() {
	ctx, cancel := context.WithCancel(s.d.life.Context())
	defer cancel()
	for s.lost() == nil {
		err := s.speak(ctx)
		if noLease(err) {
			s.lose(fmt.Errorf("%w: its session is over: etcd has ended it", driver.ErrLost))
			return
		}
		select {
		case <-s.life.Done():
		case <-time.After(min(retryAfter, s.ttl/20)):
		}
	}
}

// speak sends keep-alives on one stream, until that fails: one at once, one whenever somebody asks, and one from time to time.
func (s *session) speak(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := min(longest, s.ttl/3)
	late := time.AfterFunc(limit, cancel) // which ends the stream, and what waits for it
	defer late.Stop()
	stream, err := clientv3.RetryLeaseClient(s.d.client).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(s.ttl / beats)
	defer tick.Stop()
	for {
		if err := s.send(stream); err != nil {
			return err
		}
		late.Stop()
		select {
		case <-s.life.Done():
			return nil
		case <-s.kick:
		case <-tick.C:
			s.sweep()
		}
		late.Reset(limit)
	}
}

// send sends one keep-alive. Who asked for one before is answered by it, or by a later one if it fails.
func (s *session) send(stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	s.mu.Lock()
	asked := s.asked
	s.asked, s.open = nil, nil
	s.mu.Unlock()
	start := driver.Now() // before the request: the deadline must not be late
	err := s.exchange(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch over := s.lost(); {
	case over != nil:
		start, err = driver.Instant{}, over
	case err != nil:
		s.asked = append(asked, s.asked...)
		return err
	default:
		s.start = start
	}
	for _, b := range asked {
		b.answer(start, err)
	}
	return err
}

func (s *session) exchange(stream etcdserverpb.Lease_LeaseKeepAliveClient) error {
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(s.id)}); err != nil {
		return err
	}
	answer, err := stream.Recv()
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	return err
}

// suspect notes a key that a request may put which was given up: the member that has it may hang, and go on later. Should the
// key appear it is deleted with one of the next keep-alives.
func (s *session) suspect(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost() == nil {
		s.doubt[key] = time.Now()
	}
}

// sweep deletes the suspects, in the background.
func (s *session) sweep() {
	s.mu.Lock()
	var keys []string
	for key, since := range s.doubt {
		if time.Since(since) > doubtful {
			delete(s.doubt, key)
		}
		if keys = append(keys, key); len(keys) == sweeps {
			break
		}
	}
	s.mu.Unlock()
	if len(keys) == 0 {
		return
	}
	s.d.life.Go(func() {
		ops := make([]clientv3.Op, len(keys))
		for i, key := range keys {
			ops[i] = clientv3.OpDelete(key)
		}
		_, _ = s.d.commit(s.d.life.Context(), nil, ops, nil) // the next time will do as well
	})
}
