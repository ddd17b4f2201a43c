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

// look looks at something that is watched from then on: changed is closed when it may have changed since, or when the
// connection was lost. However many look, there is one watch in the server and in the client library, until it has told.
// A node that does not exist is errGone, and is not watched.
func (s *session) look(ctx context.Context, w watch) (changed <-chan struct{}, seen sight, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, seen, err
	}
	s.mu.Lock()
	ch, watched := s.watches[w]
	if !watched {
		ch = make(chan struct{})
		s.watches[w] = ch // before the request: what changes after it is told before, or right after, its answer comes
	}
	s.mu.Unlock()
	seen, err = begin(s, func(conn *zk.Conn) (seen sight, err error) {
		if seen, err = w.get(conn, !watched); err != nil && !watched {
			s.unwatch(w, ch)
		}
		return seen, err
	}).wait(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		err = errGone
	}
	return ch, seen, err
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
func (s *session) unwatch(w watch, ch chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w] == ch {
		delete(s.watches, w)
		close(ch)
	}
}

// wakeAll ends all watches. The library renews its own on the next connection, but those who wait look for themselves. It is
// called with the mutex held.
func (s *session) wakeAll() {
	for w, ch := range s.watches {
		delete(s.watches, w)
		close(ch)
	}
}

// changed is called with each change that a server tells of.
func (s *session) changed(e zk.Event) {
	s.mu.Lock()
	wake := func(w watch) {
		if ch := s.watches[w]; ch != nil {
			delete(s.watches, w)
			close(ch)
		}
	}
	wake(watch{e.Path, e.Type == zk.EventNodeChildrenChanged})
	h := s.holds[e.Path]
	if e.Type == zk.EventNodeDeleted {
		wake(watch{e.Path, true})
	}
	s.mu.Unlock()
	switch {
	case h == nil:
	case e.Type == zk.EventNodeDeleted:
		h.lose(driver.ErrLost)
	default: // the watch has told, and is to be set again
		h.unwatched()
	}
}
