package zklock

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// maxNap bounds the sleep of the guard: Go's timers stand still while the machine sleeps.
	maxNap = 250 * time.Millisecond

	// minNap is how long the guard sleeps at least, and how old a hold is when the guard watches
	// its node: shorter holds cost no request for that.
	minNap = 20 * time.Millisecond
)

// guard looks after the holds of a session while there are any:
//   - It ends a hold whose lease has ended, so that the node of a hold that was told to be lost blocks nobody until Release.
//   - It watches the nodes, so that a holder is told at once if somebody deletes one.
//
// A hold that nobody ever renews lasts as long as the session does.
func (s *session) guard() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watched := make(chan struct{}, 1) // of one: whose turn it is to set watches
	for {
		r := s.round(driver.Now())
		for _, h := range r.ended {
			h.lose(fmt.Errorf("%w: its lease was not renewed in time", driver.ErrLost), driver.Instant{})
		}
		if r.over {
			return
		}
		if len(r.unseen) > 0 {
			s.watchSoon(r, watched)
		}
		timer.Reset(max(minNap, r.nap))
		select {
		case <-timer.C:
			continue
		case <-s.young:
			timer.Reset(minNap)
		case <-s.life.Done():
			continue
		}
		select {
		case <-timer.C:
		case <-s.life.Done():
		}
	}
}

// A round is what a look at all holds of a session came to.
type round struct {
	ended  []*hold // their leases have
	unseen []*hold // to be watched on the connection link
	link   int
	nap    time.Duration // until the next round
	over   bool          // there are no holds: the guard ends
}

func (s *session) round(now driver.Instant) round {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := round{link: s.links, nap: maxNap}
	if r.over = len(s.holds) == 0 || s.life.Err() != nil; r.over {
		s.guarded, s.looked = false, driver.Instant{}
		return r
	}
	up := s.isUp()
	paused := !s.looked.IsZero() && now.Sub(s.looked) > s.tenure()
	s.looked = now
	for _, h := range s.holds {
		if h.until.IsZero() && paused { // who would have renewed it has given it up
			h.until = s.reliable(h.start)
		}
		left, age := s.leaseLeft(h, now), now.Sub(h.start)
		if left <= 0 {
			r.ended = append(r.ended, h)
			continue
		}
		r.nap = min(r.nap, left)
		switch {
		case !up || !h.unseen(r.link):
		case age < minNap:
			r.nap = min(r.nap, minNap-age)
		default:
			r.unseen = append(r.unseen, h)
		}
	}
	return r
}

// leaseLeft is what is left of a hold for all that is known now. One that was never to be renewed lasts with the session,
// which is in doubt without a connection. It is called with the mutex held.
func (s *session) leaseLeft(h *hold, now driver.Instant) time.Duration {
	switch {
	case !h.until.IsZero():
		return h.until.Left(now)
	case s.isUp():
		return maxNap
	}
	return s.reliable(s.acked).Left(now)
}

// reliable is until when a holder relies on what the leader has confirmed: the clocks of both may
// differ in rate. It is called with the mutex held.
func (s *session) reliable(start driver.Instant) driver.Instant {
	return start.Add(s.tenure() * 99 / 100)
}

// renewed notes the outcome of a renewal. From the first one on a hold lasts for its own lease,
// and no longer with the session: who renews gives it up when that fails.
func (s *session) renewed(holds []*hold, start driver.Instant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holds {
		switch {
		case err == nil:
			h.until = s.reliable(start)
		case h.until.IsZero():
			h.until = s.reliable(h.start)
		}
	}
}

// extended notes that an owner was granted its hold once more.
func (s *session) extended(h *hold, start driver.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.until.IsZero() {
		h.until = s.reliable(start)
	}
}

// watchSoon watches the nodes of holds in the background, unless that is under way.
func (s *session) watchSoon(r round, turn chan struct{}) {
	select {
	case turn <- struct{}{}:
	default:
		return
	}
	s.d.life.Go(func() {
		defer func() { <-turn }()
		_ = s.beginWatches(s.life, r.unseen, r.link)() // the next round tries again
	})
}
