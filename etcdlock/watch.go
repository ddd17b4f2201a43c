package etcdlock

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// minWatchAge is how old a lease is when its key is watched, so that shorter holds cost no
// request for that.
const minWatchAge = 20 * time.Millisecond

// keyWatches are the watches that report the deletion of the keys of a session's leases. All of
// them share one stream. Guarded by session.mu.
type keyWatches struct {
	wakeup chan struct{} // of capacity 1: there is something to watch or cancel

	unwatched []*lease         // in the order of their grants
	byID      map[int64]*lease // by the ids of their watches
	toCancel  []int64          // ids of watches
	lastID    int64            // the id that was assigned last
}

// scheduleWatch has the key of a lease watched once the lease is old enough. It is called with
// the mutex held.
func (s *session) scheduleWatch(l *lease) {
	s.keyWatches.unwatched = append(s.keyWatches.unwatched, l)
	s.keyWatches.wake()
}

func (w *keyWatches) wake() {
	select {
	case w.wakeup <- struct{}{}:
	default:
	}
}

// unwatch ends the watch of a lease that is about to end, or has ended: the loss of its key is
// not news then. It is called with the mutex held.
func (s *session) unwatch(l *lease) {
	l.muted = true
	if _, watched := s.keyWatches.byID[l.watchID]; watched {
		delete(s.keyWatches.byID, l.watchID)
		s.keyWatches.toCancel = append(s.keyWatches.toCancel, l.watchID)
		s.keyWatches.wake()
	}
}

// watchLeases has etcd report when the key of a lease is deleted, until the session is over. It
// replaces a stream that fails. The next stream finds out what happened in between.
func (s *session) watchLeases() {
	ctx, cancel := s.bound(s.d.life.Context())
	defer cancel()
	for ctx.Err() == nil {
		_ = s.watchOnStream(ctx) // renewals find out the same, later
		s.mu.Lock()
		clear(s.keyWatches.byID)
		s.keyWatches.toCancel, s.keyWatches.unwatched = nil, nil
		for l := range s.leases {
			l.watchID = 0
			s.keyWatches.unwatched = append(s.keyWatches.unwatched, l)
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// watchOnStream watches keys on one stream, until that fails. The stream begins with the first
// key.
func (s *session) watchOnStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	timer := time.NewTimer(minWatchAge)
	defer timer.Stop()
	var stream etcdserverpb.Watch_WatchClient
	failed := make(chan error, 1)
	for {
		leases, toCancel, later := s.nextWatches()
		if stream == nil && len(leases) > 0 {
			var err error
			if stream, err = etcdserverpb.NewWatchClient(s.d.client.ActiveConnection()).Watch(ctx); err != nil {
				return err
			}
			if !s.d.life.Go(func() { failed <- s.receiveEvents(stream) }) {
				return driver.ErrClosed
			}
		}
		if err := s.sendWatches(ctx, stream, leases, toCancel); err != nil {
			return err
		}
		if !later {
			select {
			case <-s.keyWatches.wakeup:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		timer.Reset(minWatchAge)
		select {
		case <-timer.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// nextWatches returns the leases whose keys are to be watched now, and the watches that are to
// be cancelled. later reports whether some leases are still too young.
func (s *session) nextWatches() (leases []*lease, toCancel []int64, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, now := &s.keyWatches, driver.Now()
	for len(w.unwatched) > 0 && len(leases) < batch {
		l := w.unwatched[0]
		if _, held := s.leases[l]; held && !l.muted {
			if now.Sub(l.since) < minWatchAge {
				break
			}
			leases = append(leases, l)
		}
		w.unwatched[0], w.unwatched = nil, w.unwatched[1:]
	}
	toCancel, w.toCancel = w.toCancel, nil
	return leases, toCancel, len(w.unwatched) > 0
}

// sendWatches begins and cancels watches. It first reads the keys, so that each watch reports
// what happens after its key was found.
func (s *session) sendWatches(ctx context.Context, stream etcdserverpb.Watch_WatchClient, leases []*lease, toCancel []int64) error {
	for _, id := range toCancel {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id},
		}})
		if err != nil {
			return err
		}
	}
	if len(leases) == 0 {
		return nil
	}
	ops := make([]clientv3.Op, len(leases))
	for i, l := range leases {
		ops[i] = clientv3.OpGet(l.key, clientv3.WithKeysOnly())
	}
	answer, err := s.d.commit(ctx, nil, ops, nil)
	if err != nil {
		return err
	}
	for i, l := range leases {
		if !l.isFoundIn(answer.Responses[i].GetResponseRange()) {
			s.onKeyDeleted(l)
			continue
		}
		create := &etcdserverpb.WatchCreateRequest{
			Key: []byte(l.key), StartRevision: answer.Header.Revision + 1, WatchId: s.assignWatchID(l),
			Filters: []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT},
		}
		if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			return err
		}
	}
	return nil
}

// assignWatchID assigns an id to the watch of a lease. If the lease has ended meanwhile, the
// watch is cancelled soon.
func (s *session) assignWatchID(l *lease) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.keyWatches
	w.lastID++
	if l.muted {
		w.toCancel = append(w.toCancel, w.lastID)
		w.wake()
		return w.lastID
	}
	l.watchID, w.byID[w.lastID] = w.lastID, l
	return w.lastID
}

// receiveEvents handles the events of a stream, until that fails.
func (s *session) receiveEvents(stream etcdserverpb.Watch_WatchClient) error {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		l := s.keyWatches.byID[resp.WatchId]
		s.mu.Unlock()
		if l == nil { // it has ended
			continue
		}
		if resp.Canceled {
			return fmt.Errorf("etcd has ended a watch: %s", resp.CancelReason)
		}
		for _, ev := range resp.Events {
			if ev.Type == mvccpb.Event_DELETE && ev.Kv.ModRevision > l.revision {
				s.onKeyDeleted(l)
			}
		}
	}
}

// onKeyDeleted ends a lease whose key was deleted, and finds out whether the session has ended
// with it.
func (s *session) onKeyDeleted(l *lease) {
	s.mu.Lock()
	muted := l.muted
	s.mu.Unlock()
	if muted {
		return
	}
	l.lose(errKeyGone)
	s.requestKeepAlive()
}
