package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// A watch is what a session is told changes of: a node, or the list of its children.
type watch struct {
	path     string
	children bool
}

// A sight is what a watched node looked like when it was looked at.
type sight struct {
	data  []byte
	stat  zk.Stat
	names []string // of its children, if these are watched
}

// A notice tells that what was looked at may have changed since, or that the connection was lost.
type notice struct {
	changed chan struct{} // closed then
	gone    bool          // it was deleted; not to be read before
}

// told reports whether it has.
func (n *notice) told() bool {
	select {
	case <-n.changed:
		return true
	default:
		return false
	}
}

// look looks at something that is watched from then on. However many look, there is one watch in the server and in the client
// library, until it has told. A node that does not exist is errGone, and is not watched.
func (s *session) look(ctx context.Context, w watch) (*notice, sight, error) {
	if err := s.ready(ctx); err != nil {
		return nil, sight{}, err
	}
	n, answer := s.beginLook(w)
	seen, err := answer.wait(ctx)
	return n, seen, gone(err)
}

// gone says in our words that a node does not exist.
func gone(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return errGone
	}
	return err
}

// beginLook is look, without waiting for the answer.
func (s *session) beginLook(w watch) (*notice, *call[sight]) {
	s.mu.Lock()
	n, watched := s.watches[w]
	if !watched {
		n = &notice{changed: make(chan struct{})}
		s.watches[w] = n // before the request: what changes after it is told before, or right after, its answer comes
	}
	s.mu.Unlock()
	return n, begin(s, func(conn *zk.Conn) (seen sight, err error) {
		if seen, err = w.get(conn, !watched); err != nil && !watched {
			s.unwatch(w, n)
		}
		return seen, err
	})
}

// get asks a server. Reading data, unlike asking whether a node exists, sets no watch on what does not.
func (w watch) get(conn *zk.Conn, set bool) (seen sight, err error) {
	var stat *zk.Stat
	switch {
	case w.children && set:
		seen.names, stat, _, err = conn.ChildrenW(w.path)
	case w.children:
		seen.names, stat, err = conn.Children(w.path)
	case set:
		seen.data, stat, _, err = conn.GetW(w.path)
	default:
		seen.data, stat, err = conn.Get(w.path)
	}
	if err == nil {
		seen.stat = *stat
	}
	return seen, err
}

// unwatch ends a watch that was never set.
func (s *session) unwatch(w watch, n *notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w] == n {
		s.wake(w, false)
	}
}

// wakeAll ends all watches. The library renews its own on the next connection, but those who wait look for themselves. It is
// called with the mutex held.
func (s *session) wakeAll() {
	for w := range s.watches {
		s.wake(w, false)
	}
}

// wake ends a watch, if there is one. It is called with the mutex held.
func (s *session) wake(w watch, gone bool) {
	if n := s.watches[w]; n != nil {
		delete(s.watches, w)
		n.gone = gone
		close(n.changed)
	}
}

// changed is called with each change that a server tells of.
func (s *session) changed(e zk.Event) {
	s.mu.Lock()
	deleted := e.Type == zk.EventNodeDeleted
	s.wake(watch{e.Path, e.Type == zk.EventNodeChildrenChanged}, deleted)
	h := s.holds[e.Path]
	if deleted {
		s.wake(watch{e.Path, true}, true)
	}
	s.mu.Unlock()
	switch {
	case h == nil:
	case deleted:
		h.lose(driver.ErrLost, driver.Instant{})
	default: // the watch has told, and is to be set again
		h.unwatched()
	}
}
