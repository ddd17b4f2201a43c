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

// keyWatches are the watches that report the deletion of the keys of a session's leases. All of
// them share one stream. Guarded by session.mu.
type keyWatches struct {
	wakeup chan struct{} // of capacity 1: there is something to watch or cancel

	unwatched []*lease         // in the order of their grants
	byID      map[int64]*lease // by the ids of their watches
	toCancel  []int64          // ids of watches
	lastID    int64            // the id that was assigned last

	announced []*lease // whose watches etcd has announced, and whose keys are to be read once

	// A report of progress says that the stream has sent all events up to a revision.
	askProgress chan struct{} // of capacity 1: request a report
	progress    int64         // the revision in the last report
	reported    chan struct{} // closed with the next report

	memberID uint64        // of the member that serves the stream; 0 if not known yet
	order    progressOrder // of that member
}

// A progressOrder says whether a member sends reports of progress after the events that they cover.
type progressOrder uint8

const (
	unknownOrder progressOrder = iota
	inOrder
	outOfOrder
)

func newKeyWatches() keyWatches {
	return keyWatches{
		wakeup: make(chan struct{}, 1), byID: map[int64]*lease{},
		askProgress: make(chan struct{}, 1), reported: make(chan struct{}),
	}
}

// forget forgets the watches of a stream that has ended.
func (w *keyWatches) forget() {
	for _, l := range w.byID {
		l.watchID = 0
	}
	clear(w.byID)
	w.toCancel, w.announced, w.progress = nil, nil, 0
	w.memberID, w.order = 0, unknownOrder
}

// scheduleWatch has the key of a lease watched once the lease is old enough. It is called with
// the mutex held.
func (s *session) scheduleWatch(l *lease) {
	s.keyWatches.unwatched = append(s.keyWatches.unwatched, l)
	s.keyWatches.wake()
}

func (w *keyWatches) wake() { signal(w.wakeup) }

// signal makes the receiver of a channel of capacity 1 run once more.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// unwatch ends the watch of a lease that is about to end, or has ended: the loss of its key is
// not news then. It is called with the mutex held.
func (s *session) unwatch(l *lease) {
	l.muted = true
	delete(s.unvouched, l)
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
		s.unvouched = maps.Clone(s.leases)
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
		case <-s.keyWatches.askProgress:
			if err := requestProgress(stream); err != nil {
				return err
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
		if err := s.vouch(ctx, batch.announced); err != nil {
			return err
		}
		if pending = batch.more; pending {
			timer.Reset(minWatchAge)
		}
	}
}

// learnOrder asks members for their versions until that of the stream has answered.
func (s *session) learnOrder(ctx context.Context) {
	w := &s.keyWatches
	for range s.d.client.Endpoints() { // the client takes turns among the members
		s.mu.Lock()
		done := w.order != unknownOrder || w.memberID == 0
		s.mu.Unlock()
		if done {
			return
		}
		status, err := call(ctx, s.d, func(ctx context.Context) (*etcdserverpb.StatusResponse, error) {
			return etcdserverpb.NewMaintenanceClient(s.d.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
		})
		if err != nil {
			return
		}
		s.mu.Lock()
		if w.memberID == status.Header.GetMemberId() {
			w.order = orderOf(status.Version)
		}
		s.mu.Unlock()
	}
}

// orderOf returns the order of reports of progress in a version of etcd. It is right in 3.4.25,
// 3.5.8, and all from 3.6 on.
func orderOf(version string) progressOrder {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 3 {
		return outOfOrder
	}
	switch {
	case major > 3, major == 3 && minor > 5, major == 3 && minor == 5 && patch >= 8, major == 3 && minor == 4 && patch >= 25:
		return inOrder
	}
	return outOfOrder
}

// requestProgress requests a report of progress, if there is a stream.
func requestProgress(stream etcdserverpb.Watch_WatchClient) error {
	if stream == nil {
		return nil
	}
	return stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{
		ProgressRequest: &etcdserverpb.WatchProgressRequest{},
	}})
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
		if _, held := s.leases[l]; held && !l.muted {
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
			Filters: []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT},
		}
		if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
			return err
		}
	}
	return nil
}

// vouch reads the keys of leases whose watches etcd has announced. From then on, the stream tells
// of their deletion: the watch reports later ones, and vouch finds earlier ones.
func (s *session) vouch(ctx context.Context, leases []*lease) error {
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
		s.mu.Lock()
		delete(s.unvouched, l)
		s.mu.Unlock()
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

// invalidWatchID is the id in a report of progress, which covers all watches of its stream, and in
// a refusal.
const invalidWatchID = -1

// noteResponse records what a response says of the stream, and returns the lease that it is for,
// or nil.
func (s *session) noteResponse(resp *etcdserverpb.WatchResponse) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.keyWatches
	l := w.byID[resp.WatchId]
	w.memberID = resp.Header.GetMemberId()
	switch {
	case resp.Canceled:
	case resp.WatchId == invalidWatchID:
		w.progress = resp.Header.Revision
		close(w.reported)
		w.reported = make(chan struct{})
	case resp.Created && l != nil:
		w.announced = append(w.announced, l)
		w.wake()
	}
	return l
}

const (
	// progressInterval is how long to wait for a report of progress before it is requested again:
	// etcd sends none while a watch is behind, which a loop of etcd mends ten times a second.
	progressInterval = 100 * time.Millisecond

	// progressTimeout is how long to wait for it at all.
	progressTimeout = 3 * progressInterval
)

// awaitProgress waits until the stream has reported all events up to a revision, and reports
// whether it has.
func (s *session) awaitProgress(ctx context.Context, revision int64) bool {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < progressTimeout; {
		s.mu.Lock()
		w := &s.keyWatches
		reached, canAsk, reported := w.progress >= revision, w.order == inOrder && len(w.byID) > 0, w.reported
		s.mu.Unlock()
		if reached || !canAsk {
			return reached
		}
		signal(w.askProgress)
		select {
		case <-reported:
		case <-time.After(progressInterval):
		case <-ctx.Done():
		}
	}
	return false
}

// checkAll finds out which leases have ended, and tells them. It reads their keys if they are few.
// Otherwise it asks the stream of watches, so that any number of leases costs one request, and
// reads only the keys that the stream does not know.
func (s *session) checkAll(ctx context.Context) error {
	leases, err := s.uncertain(ctx)
	if err != nil {
		return err
	}
	for l, failure := range s.d.checkKeys(ctx, leases) {
		if errors.Is(failure, driver.ErrLost) {
			s.onKeyDeleted(l)
		} else {
			err = failure
		}
	}
	return err
}

// uncertain returns the leases whose keys checkAll has to read.
func (s *session) uncertain(ctx context.Context) ([]*lease, error) {
	told := false // the stream has told of all deletions before the call
	if key, n := s.anyKey(); n > batch {
		// The revision that a majority had when the call began, or a later one.
		current, err := call(ctx, s.d, func(ctx context.Context) (*clientv3.GetResponse, error) {
			return s.d.client.Get(ctx, key, clientv3.WithCountOnly())
		})
		if err != nil {
			return nil, err
		}
		s.learnOrder(ctx)
		told = s.awaitProgress(ctx, current.Header.Revision)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !told {
		return slices.Collect(maps.Keys(s.leases)), nil
	}
	return slices.AppendSeq(slices.Collect(maps.Keys(s.unvouched)), maps.Keys(s.unrecorded)), nil
}

// anyKey returns the key of some lease, and the number of leases.
func (s *session) anyKey() (key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.leases {
		return l.key, len(s.leases)
	}
	return "", 0
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
