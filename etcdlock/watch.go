package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sniblock/snib/driver"
)

// minWatchAge is how old a lease is when its key is watched, so that shorter holds cost no
// request for that.
const minWatchAge = 20 * time.Millisecond

// streamPause is the pause after a stream that failed. If etcd refuses the watches, as it may with
// package clientv3/namespace, it refuses those on the next stream, too.
const streamPause = time.Second

// keyWatches are the watches that report the deletion of the keys of a session's leases. All of
// them share one stream. Guarded by session.mu.
type keyWatches struct {
	wakeup chan struct{} // of capacity 1: there is something to watch or cancel

	unwatched []*lease         // in the order of their grants
	byID      map[int64]*lease // by the ids of their watches
	toCancel  []int64          // ids of watches
	lastID    int64            // the id that was assigned last

	announced []*lease // whose watches etcd has announced, and whose keys are to be read once
}

func newKeyWatches() keyWatches {
	return keyWatches{wakeup: make(chan struct{}, 1), byID: map[int64]*lease{}}
}

// forget forgets the watches of a stream that has ended.
func (w *keyWatches) forget() {
	for _, l := range w.byID {
		l.watchID = 0
	}
	clear(w.byID)
	w.toCancel, w.announced = nil, nil
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

// unwatch ends the watch of a lease. It is called with the mutex held.
func (s *session) unwatch(l *lease) {
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
		s.keyWatches.forget()
		s.keyWatches.unwatched = slices.Collect(maps.Keys(s.leases))
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(streamPause):
		}
	}
}

// watchOnStream watches keys on one stream, until that fails. The stream begins with the first
// key.
func (s *session) watchOnStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	timer := time.NewTimer(0)
	defer timer.Stop()
	pending := true // the timer runs
	var stream etcdserverpb.Watch_WatchClient
	failed := make(chan error, 1) // closed after the result of receiveEvents
	defer func() {
		if cancel(); stream != nil {
			for range failed { // nothing is recorded of the stream after the return
			}
		}
	}()
	for {
		select {
		case <-s.keyWatches.wakeup:
			if !pending { // wait, so that several go together
				pending = true
				timer.Reset(minWatchAge)
			}
			continue
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		batch := s.nextWatches()
		if stream == nil && len(batch.toWatch) > 0 {
			opened, err := etcdserverpb.NewWatchClient(s.d.client.ActiveConnection()).Watch(ctx)
			if err != nil {
				return err
			}
			if !s.d.life.Go(func() { failed <- s.receiveEvents(opened); close(failed) }) {
				return driver.ErrClosed
			}
			stream = opened
		}
		if err := s.sendWatches(stream, batch); err != nil {
			return err
		}
		// A watch reports only what happens after its announcement.
		if err := s.checkLeases(ctx, batch.announced); err != nil {
			return err
		}
		if pending = batch.more; pending {
			timer.Reset(minWatchAge)
		}
	}
}

// A watchBatch is what is to be done next on a stream of watches.
type watchBatch struct {
	toWatch   []*lease
	toCancel  []int64  // ids of watches
	announced []*lease // see keyWatches
	more      bool     // there is more, such as leases that are still too young
}

func (s *session) nextWatches() watchBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, now := &s.keyWatches, driver.Now()
	var b watchBatch
	for len(w.unwatched) > 0 && len(b.toWatch) < batch {
		l := w.unwatched[0]
		if _, held := s.leases[l]; held {
			if now.Sub(l.since) < minWatchAge {
				break
			}
			b.toWatch = append(b.toWatch, l)
		}
		w.unwatched[0], w.unwatched = nil, w.unwatched[1:]
	}
	b.toCancel, w.toCancel = w.toCancel, nil
	n := min(len(w.announced), batch)
	b.announced, w.announced = w.announced[:n], w.announced[n:]
	b.more = len(w.unwatched) > 0 || len(w.announced) > 0
	return b
}

// sendWatches begins and cancels watches. They begin at no particular revision: if a watch asks for
// a past one, etcd serves it with a loop that runs only ten times a second.
func (s *session) sendWatches(stream etcdserverpb.Watch_WatchClient, b watchBatch) error {
	for _, id := range b.toCancel {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id},
		}})
		if err != nil {
			return err
		}
	}
	for _, l := range b.toWatch {
		create := &etcdserverpb.WatchCreateRequest{
			Key: []byte(l.key), WatchId: s.assignWatchID(l),
		}
		if err := stream.Send(&etcdserverpb.WatchRequest{
			RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
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
	if _, held := s.leases[l]; !held {
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
		l := s.noteResponse(resp)
		if resp.Canceled && (l != nil || resp.WatchId == invalidWatchID) { // such as after a compaction
			return fmt.Errorf("etcd has ended or refused a watch: %s", resp.CancelReason)
		}
		if l == nil { // it has ended
			continue
		}
		for _, ev := range resp.Events {
			if ev.Type == mvccpb.Event_DELETE && ev.Kv.ModRevision > l.revision {
				s.onKeyDeleted(l)
			}
		}
	}
}

// invalidWatchID is the id in a refusal of a watch.
const invalidWatchID = -1

// noteResponse records what a response says of the stream, and returns the lease that it is for,
// or nil.
func (s *session) noteResponse(resp *etcdserverpb.WatchResponse) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.keyWatches
	l := w.byID[resp.WatchId]
	if resp.Created && !resp.Canceled && l != nil {
		w.announced = append(w.announced, l)
		w.wake()
	}
	return l
}

// allLeases returns the leases of the session.
func (s *session) allLeases() []*lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.leases))
}

// checkLeases is [Driver.checkKeys], and tells the leases that have ended.
func (s *session) checkLeases(ctx context.Context, leases []*lease) (err error) {
	for l, failure := range s.d.checkKeys(ctx, leases) {
		if errors.Is(failure, driver.ErrLost) {
			s.onKeyDeleted(l)
		} else {
			err = failure
		}
	}
	return err
}

// onKeyDeleted ends a lease whose key was deleted, and finds out whether the session has ended
// with it.
func (s *session) onKeyDeleted(l *lease) {
	s.mu.Lock()
	_, held := s.leases[l]
	s.mu.Unlock()
	if held { // else it has ended, or its release has deleted the key
		l.lose(errKeyGone)
		s.requestKeepAlive(0)
	}
}
