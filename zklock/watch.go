package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A watchKey identifies what a session watches: a node, or the list of its children.
type watchKey struct {
	path     string
	children bool
}

// A snapshot is the state of a watched node when it was read.
type snapshot struct {
	data  []byte
	stat  zk.Stat
	names []string // of its children, if those are watched
}

// A watchEvent tells that the state may have changed since it was read, or that the connection
// was lost.
type watchEvent struct {
	changed chan struct{} // closed by wake
	set     bool          // the server has answered that it watches; guarded by the session's mutex
}

// fired reports whether the event has happened.
func (ev *watchEvent) fired() bool {
	select {
	case <-ev.changed:
		return true
	default:
		return false
	}
}

// watch reads something and watches it from then on. All callers share one watch in the server
// and in the client library, until it fires. If watch succeeds, the server watches, or the event
// has fired. A node that does not exist is errNodeGone, and is not watched.
func (s *session) watch(ctx context.Context, key watchKey) (*watchEvent, snapshot, error) {
	if err := s.ready(ctx); err != nil {
		return nil, snapshot{}, err
	}
	s.mu.Lock()
	ev := s.watches[key]
	if ev == nil {
		ev = &watchEvent{changed: make(chan struct{})}
		// The event is registered before the request is sent: a later change is reported
		// before, or right after, the answer.
		s.watches[key] = ev
	}
	setWatch := !ev.set // the request of the caller that registered the event may come later, or fail
	s.mu.Unlock()
	answer := startCall(s, func(conn *zk.Conn) (snap snapshot, err error) {
		if snap, err = key.read(conn, setWatch); setWatch {
			s.recordWatch(key, ev, err)
		}
		return snap, err
	})
	snap, err := answer.wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		err = errNodeGone
	}
	return ev, snap, err
}

// read sends the request. It reads data instead of asking whether the node exists, because that
// would set a watch on a node that does not.
func (key watchKey) read(conn *zk.Conn, setWatch bool) (snap snapshot, err error) {
	var stat *zk.Stat
	switch {
	case key.children && setWatch:
		snap.names, stat, _, err = conn.ChildrenW(key.path)
	case key.children:
		snap.names, stat, err = conn.Children(key.path)
	case setWatch:
		snap.data, stat, _, err = conn.GetW(key.path)
	default:
		snap.data, stat, err = conn.Get(key.path)
	}
	if err == nil {
		snap.stat = *stat
	}
	return snap, err
}

// recordWatch records the outcome of a request to watch. If that failed, it ends the watch.
func (s *session) recordWatch(key watchKey, ev *watchEvent, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		ev.set = true
	} else if s.watches[key] == ev {
		s.wake(key)
	}
}

// wakeAll ends all watches. The library sets its own again on the next connection, but the
// waiters check for themselves. It is called with the mutex held.
func (s *session) wakeAll() {
	for key := range s.watches {
		s.wake(key)
	}
}

// wake ends a watch, if there is one. It is called with the mutex held.
func (s *session) wake(key watchKey) {
	if ev := s.watches[key]; ev != nil {
		delete(s.watches, key)
		close(ev.changed)
	}
}

// onNodeEvent handles a change that a server reports.
func (s *session) onNodeEvent(e zk.Event) {
	s.mu.Lock()
	deleted := e.Type == zk.EventNodeDeleted
	s.wake(watchKey{e.Path, e.Type == zk.EventNodeChildrenChanged})
	if deleted {
		s.wake(watchKey{e.Path, true})
	}
	s.mu.Unlock()
	s.d.leasesMu.Lock()
	l := s.d.leases[e.Path]
	s.d.leasesMu.Unlock()
	switch {
	case l == nil:
	case deleted:
		l.lose(driver.ErrLost, driver.Instant{})
	default:
		l.watchTimer.Reset(minWatchAge)
	}
}
