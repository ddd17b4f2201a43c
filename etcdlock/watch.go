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

// settled is how old a hold is when its key is watched. Shorter holds cost nothing for that.
const settled = 20 * time.Millisecond

// watched are the keys of a session's holds that etcd is to tell the deletion of. All of them
// share one stream. Guarded by session.mu.
type watched struct {
	poke chan struct{} // of one: there is something to be watched

	waiting []*hold         // not watched yet, in the order of their grants
	byID    map[int64]*hold // by the ids of their watches
	ended   []int64         // watches to be cancelled
	last    int64           // id that was given
}

// watchLater has the key of a hold watched once it is old enough. It is called with the mutex
// held.
func (s *session) watchLater(h *hold) {
	s.watched.waiting = append(s.watched.waiting, h)
	s.watched.wake()
}

func (w *watched) wake() {
	select {
	case w.poke <- struct{}{}:
	default:
	}
}

// unwatch ends the watch of a hold that is about to end, or has: that its key goes then is no
// news. It is called with the mutex held.
func (s *session) unwatch(h *hold) {
	h.quiet = true
	if _, watched := s.watched.byID[h.watch]; watched {
		delete(s.watched.byID, h.watch)
		s.watched.ended = append(s.watched.ended, h.watch)
		s.watched.wake()
	}
}

// watchHolds has etcd tell when the key of a hold is deleted, until the session is over. A stream
// that fails is replaced; what happens in between is found out when the next one begins.
func (s *session) watchHolds() {
	ctx, cancel := s.within(s.d.life.Context())
	defer cancel()
	for ctx.Err() == nil {
		_ = s.watchStream(ctx) // renewals find out the same, later
		s.mu.Lock()
		clear(s.watched.byID)
		s.watched.ended, s.watched.waiting = nil, nil
		for h := range s.holds {
			h.watch = 0
			s.watched.waiting = append(s.watched.waiting, h)
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(retryAfter):
		}
	}
}

// watchStream watches keys on one stream, until that fails. The stream begins with the first key.
func (s *session) watchStream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	timer := time.NewTimer(settled)
	defer timer.Stop()
	var stream etcdserverpb.Watch_WatchClient
	failed := make(chan error, 1)
	for {
		holds, ended, later := s.toWatch()
		if stream == nil && len(holds) > 0 {
			var err error
			if stream, err = etcdserverpb.NewWatchClient(s.d.client.ActiveConnection()).Watch(ctx); err != nil {
				return err
			}
			if !s.d.life.Go(func() { failed <- s.hear(stream) }) {
				return driver.ErrClosed
			}
		}
		if err := s.sendWatches(ctx, stream, holds, ended); err != nil {
			return err
		}
		if !later {
			select {
			case <-s.watched.poke:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		timer.Reset(settled)
		select {
		case <-timer.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// toWatch returns the holds whose keys are to be watched now, with the ids for that, and the
// watches that are to be cancelled. later says that some holds are too young.
func (s *session) toWatch() (holds []*hold, ended []int64, later bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, now := &s.watched, driver.Now()
	for len(w.waiting) > 0 && len(holds) < batch {
		h := w.waiting[0]
		if _, held := s.holds[h]; held && !h.quiet {
			if now.Sub(h.since) < settled {
				break
			}
			holds = append(holds, h)
		}
		w.waiting[0], w.waiting = nil, w.waiting[1:]
	}
	ended, w.ended = w.ended, nil
	return holds, ended, len(w.waiting) > 0
}

// sendWatches begins and cancels watches. A watch tells what happens after a look at the key that
// has found it there.
func (s *session) sendWatches(ctx context.Context, stream etcdserverpb.Watch_WatchClient, holds []*hold, ended []int64) error {
	for _, id := range ended {
		err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{
			CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id},
		}})
		if err != nil {
			return err
		}
	}
	if len(holds) == 0 {
		return nil
	}
	ops := make([]clientv3.Op, len(holds))
	for i, h := range holds {
		ops[i] = clientv3.OpGet(h.key, clientv3.WithKeysOnly())
	}
	answer, err := s.d.commit(ctx, nil, ops, nil)
	if err != nil {
		return err
	}
	for i, h := range holds {
		if !h.isIn(answer.Responses[i].GetResponseRange()) {
			s.gone(h)
			continue
		}
		create := &etcdserverpb.WatchCreateRequest{
			Key: []byte(h.key), StartRevision: answer.Header.Revision + 1, WatchId: s.nextWatch(h),
			Filters: []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT},
		}
		if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			return err
		}
	}
	return nil
}

// nextWatch gives the watch of a hold an id. If the hold ends meanwhile, the watch is cancelled
// soon.
func (s *session) nextWatch(h *hold) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.watched
	w.last++
	if h.quiet {
		w.ended = append(w.ended, w.last)
		w.wake()
		return w.last
	}
	h.watch, w.byID[w.last] = w.last, h
	return w.last
}

// hear takes what etcd tells on a stream, until that fails.
func (s *session) hear(stream etcdserverpb.Watch_WatchClient) error {
	for {
		said, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		h := s.watched.byID[said.WatchId]
		s.mu.Unlock()
		if h == nil { // it has ended
			continue
		}
		if said.Canceled {
			return fmt.Errorf("etcd has ended a watch: %s", said.CancelReason)
		}
		for _, ev := range said.Events {
			if ev.Type == mvccpb.Event_DELETE && ev.Kv.ModRevision > h.revision {
				s.gone(h)
			}
		}
	}
}

// gone ends a hold whose key was deleted, and finds out whether the session has ended with it.
func (s *session) gone(h *hold) {
	s.mu.Lock()
	quiet := h.quiet
	s.mu.Unlock()
	if quiet {
		return
	}
	h.lose(errKeyGone)
	s.beat()
}
