package zklock

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An orphan is a node that may exist and that nobody needs any more.
type orphan struct {
	folder   string
	id       string        // in its name
	path     string        // "" if not known
	creation *call[string] // creates the node; nil if path is known
	due      driver.Instant
	pause    time.Duration // after the last failed try
	deleted  chan struct{} // closed when the sweeper has found that the node does not exist
}

// A sweeper deletes the orphans of a session. Its goroutine runs only while there are any.
// Guarded by session.mu.
type sweeper struct {
	orphans []*orphan
	running bool
	wake    chan struct{} // of capacity 1
}

// sweepRetryDelay is the delay between the first two tries. It is 20 times that in the end.
const sweepRetryDelay = 50 * time.Millisecond

// addOrphan has the sweeper delete a node, for as long as the session lives. When the session
// ends, the ensemble deletes its nodes anyway, except one that MinHold keeps: the next acquisition
// that meets that one deletes it.
func (s *session) addOrphan(o *orphan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.deleted = make(chan struct{})
	s.sweeper.orphans = append(s.sweeper.orphans, o)
	if s.sweeper.running {
		select {
		case s.sweeper.wake <- struct{}{}:
		default:
		}
		return
	}
	s.sweeper.wake = make(chan struct{}, 1)
	s.sweeper.running = s.d.life.Go(s.runSweeper) // else the driver is closed, and the session with it
}

func (s *session) runSweeper() {
	for {
		due, left, more := s.dueOrphans()
		if !more {
			return
		}
		if len(due) > 0 {
			_ = inParallel(due, func(_ int, o *orphan) error { s.recordTry(o, s.deleteOrphan(o)); return nil })()
			continue
		}
		select {
		case <-time.After(left):
		case <-s.sweeper.wake:
		case <-s.ctx.Done():
		}
	}
}

// dueOrphans returns the orphans that are due, and the time until the next one is. more is false if
// there are none or the session is over; the sweeper ends then.
func (s *session) dueOrphans() (due []*orphan, left time.Duration, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sweeper.orphans) == 0 || s.ctx.Err() != nil {
		s.sweeper.orphans, s.sweeper.running = nil, false
		return nil, 0, false
	}
	now, left := driver.Now(), math.MaxInt64
	for _, o := range s.sweeper.orphans {
		wait := o.due.SubMono(now)
		if left = min(left, wait); wait <= 0 {
			due = append(due, o)
		}
	}
	return due, left, true
}

// recordTry removes an orphan that does not exist. After a failure the others have their turn: an
// ACL may forbid one deletion for ever.
func (s *session) recordTry(o *orphan, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		o.pause = min(o.pause+sweepRetryDelay, 20*sweepRetryDelay)
		o.due = driver.Now().Add(o.pause)
		return
	}
	i := slices.Index(s.sweeper.orphans, o)
	s.sweeper.orphans = slices.Delete(s.sweeper.orphans, i, i+1)
	close(o.deleted)
}

// deleteOrphan deletes an orphan, and returns nil if it does not exist.
func (s *session) deleteOrphan(o *orphan) error {
	if o.path == "" {
		var err error
		if o.path, err = s.find(s.ctx, o.folder, o.id, o.creation); err != nil || o.path == "" {
			return err
		}
	}
	_, _, err := do(s.ctx, s, deleteNode(o.path))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// find returns the path of the node that creation made, whose name contains id, or "" if there is
// none. The answer is final: the client library does not send that request any more, and those on
// earlier connections have been executed by now, or never will be.
func (s *session) find(ctx context.Context, folder, id string, creation *call[string]) (path string, err error) {
	switch path, err = creation.wait(ctx); {
	case err == nil, !creation.isDone():
		return path, err
	case creation.isRejected():
		return "", nil
	}
	if err := s.catchUp(ctx); err != nil {
		return "", err
	}
	snap, _, err := do(ctx, s, listChildren(folder))
	for _, name := range snap.names {
		if strings.HasPrefix(name, nodePrefix+id) {
			return child(folder, name), nil
		}
	}
	return "", err
}
