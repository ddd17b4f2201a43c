package zklock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// An orphan is a node that nobody wants any more, and that may be there.
type orphan struct {
	folder string
	id     string        // in its name
	path   string        // "" if not known
	made   *call[string] // that creates it; nil if it is known what became of that
	kept   bool          // it belongs to no session: see hold.stay
	due    driver.Instant
	gone   chan struct{} // closed when it is known not to be there
}

// A sweeper deletes the orphans of a session. Its goroutine runs only while there are any. Guarded by session.mu.
type sweeper struct {
	orphans []*orphan
	running bool
	poke    chan struct{} // of one
}

// sweepPause lies between two tries.
const sweepPause = 50 * time.Millisecond

// keptTries is for how long after its time a kept node is tried to be deleted over more than one
// session.
const keptTries = 5 * time.Minute

// sweep sees to it that a node goes, for as long as the session lives; with that it would go anyway.
func (s *session) sweep(o *orphan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.gone = make(chan struct{})
	s.sweeper.orphans = append(s.sweeper.orphans, o)
	if s.sweeper.running {
		select {
		case s.sweeper.poke <- struct{}{}:
		default:
		}
		return
	}
	s.sweeper.poke = make(chan struct{}, 1)
	if s.sweeper.running = s.d.life.Go(s.sweeping); !s.sweeper.running {
		close(o.gone) // the driver is closed, and the session with it
	}
}

func (s *session) sweeping() {
	for {
		o, left := s.nextOrphan()
		if o == nil {
			return
		}
		if left <= 0 {
			if err := s.sweepOne(o); err == nil {
				s.swept(o)
				continue
			}
			left = sweepPause
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-s.sweeper.poke:
		case <-s.life.Done():
		}
		timer.Stop()
	}
}

// nextOrphan returns the one that is due first, and for how long it is not. It is nil when there is none, or the session is
// over: the sweeper ends then.
func (s *session) nextOrphan() (first *orphan, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		s.bequeath()
	}
	if len(s.sweeper.orphans) == 0 {
		s.sweeper.running = false
		return nil, 0
	}
	first = slices.MinFunc(s.sweeper.orphans, func(a, b *orphan) int {
		if a.due.Before(b.due) {
			return -1
		}
		return 1
	})
	return first, first.due.Left(driver.Now())
}

// bequeath leaves to the next session what does not go with this one. It is called with the mutex
// held.
func (s *session) bequeath() {
	var rest []*orphan
	now := driver.Now()
	for _, o := range s.sweeper.orphans {
		close(o.gone)
		if o.kept && !o.due.Add(keptTries).Reached(now) {
			rest = append(rest, o)
		}
	}
	s.sweeper.orphans = nil
	if len(rest) > 0 {
		s.d.life.Go(func() { s.d.inherit(rest) })
	}
}

// inherit has a new session delete the kept nodes of one that is over.
func (d *Driver) inherit(orphans []*orphan) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.life.Done():
		return
	}
	s, _ := d.session(d.life.Context()) // an error is one of the moment: the session goes on trying to connect
	for _, o := range orphans {
		if s != nil {
			s.sweep(o)
		}
	}
}

func (s *session) swept(o *orphan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.sweeper.orphans, o); i >= 0 {
		s.sweeper.orphans = slices.Delete(s.sweeper.orphans, i, i+1)
		close(o.gone)
	}
}

// sweepOne deletes an orphan, and returns nil when it is not there.
func (s *session) sweepOne(o *orphan) error {
	if o.made != nil {
		o.path, _ = o.made.wait(s.life) // or it is looked for
		if o.made.refused() {
			return nil
		}
	}
	if o.path == "" {
		var err error
		if o.path, _, err = s.find(s.life, o.folder, o.id); err != nil || o.path == "" {
			return err
		}
	}
	_, _, err := do(s.life, s, remove(o.path))
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// find looks for a node whose name has an id, and returns its path, or "" if there is none: whatever was asked on an earlier
// connection is done by now, or never will be. start is when it was looked.
func (s *session) find(ctx context.Context, folder, id string) (path string, start driver.Instant, err error) {
	if start, err = s.catchUp(ctx); err != nil {
		return "", start, err
	}
	seen, _, err := do(ctx, s, children(folder))
	for _, name := range seen.names {
		if strings.HasPrefix(name, prefix+id) {
			return child(folder, name), start, nil
		}
	}
	return "", start, err
}
