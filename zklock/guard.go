package zklock

import (
	"fmt"
	"time"

	"github.com/sniblock/snib/driver"
)

const (
	// maxSleep bounds the sleep of monitorLeases: Go's timers stop while the machine is suspended.
	maxSleep = 250 * time.Millisecond

	// minSleep is the least time that monitorLeases sleeps. It is also the age at which a
	// lease's node is watched, so that shorter holds cost no request for that.
	minSleep = 20 * time.Millisecond
)

// monitorLeases watches over the leases of a session while there are any:
//   - It ends a lease that has expired, so that the node of a hold that was reported lost
//     blocks nobody until Release.
//   - It watches the nodes, so that a holder learns at once if somebody deletes one.
//
// A lease that is never renewed lasts as long as the session.
func (s *session) monitorLeases() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	watchSem := make(chan struct{}, 1) // of capacity 1: held while watches are being set
	for {
		c := s.checkLeases(driver.Now())
		for _, l := range c.ended {
			l.lose(fmt.Errorf("%w: its lease was not renewed in time", driver.ErrLost), driver.Instant{})
		}
		if c.done {
			return
		}
		if len(c.unwatched) > 0 {
			s.watchInBackground(c, watchSem)
		}
		timer.Reset(max(minSleep, c.sleep))
		select {
		case <-timer.C:
			continue
		case <-s.newLease:
			timer.Reset(minSleep)
		case <-s.ctx.Done():
			continue
		}
		select {
		case <-timer.C:
		case <-s.ctx.Done():
		}
	}
}

// A leaseCheck is the result of one check of all leases of a session.
type leaseCheck struct {
	ended     []*lease // the leases that have expired
	unwatched []*lease // to be watched on the connection connSeq
	connSeq   int
	sleep     time.Duration // until the next check
	done      bool          // there are no leases: monitorLeases ends
}

func (s *session) checkLeases(now driver.Instant) leaseCheck {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := leaseCheck{connSeq: s.connSeq, sleep: maxSleep}
	if c.done = len(s.leases) == 0 || s.ctx.Err() != nil; c.done {
		s.monitoring, s.lastCheck = false, driver.Instant{}
		return c
	}
	up := s.isUp()
	paused := !s.lastCheck.IsZero() && now.Sub(s.lastCheck) > s.leaseTTLLocked()
	s.lastCheck = now
	for _, l := range s.leases {
		if l.expires.IsZero() && paused { // after such a pause its hold is over, and nobody renews it
			l.expires = s.validUntil(l.start)
		}
		left, age := s.leaseLeft(l, now), now.Sub(l.start)
		if left <= 0 {
			c.ended = append(c.ended, l)
			continue
		}
		c.sleep = min(c.sleep, left)
		switch {
		case !up || !l.needsWatch(c.connSeq):
		case age < minSleep:
			c.sleep = min(c.sleep, minSleep-age)
		default:
			c.unwatched = append(c.unwatched, l)
		}
	}
	return c
}

// leaseLeft returns how long a lease will last, as far as is known now. A lease that was never
// renewed lasts with the session, which is in doubt without a connection. It is called with the
// mutex held.
func (s *session) leaseLeft(l *lease, now driver.Instant) time.Duration {
	switch {
	case !l.expires.IsZero():
		return l.expires.Left(now)
	case s.isUp():
		return maxSleep
	}
	return s.validUntil(s.confirmedFrom).Left(now)
}

// validUntil returns until when a holder may rely on a confirmation. It allows for clocks that
// differ in rate. It is called with the mutex held.
func (s *session) validUntil(start driver.Instant) driver.Instant {
	return start.Add(s.leaseTTLLocked() * 99 / 100)
}

// recordRenewal records the outcome of a renewal. From the first one on, a lease expires by
// itself and no longer with the session: its holder gives it up when a renewal fails.
func (s *session) recordRenewal(leases []*lease, start driver.Instant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range leases {
		switch {
		case err == nil && l.expires.Before(s.validUntil(start)): // calls may overtake each other
			l.expires = s.validUntil(start)
		case l.expires.IsZero():
			l.expires = s.validUntil(l.start)
		}
	}
}

// watchInBackground watches the nodes of leases in the background, unless that is in progress.
func (s *session) watchInBackground(c leaseCheck, sem chan struct{}) {
	select {
	case sem <- struct{}{}:
	default:
		return
	}
	s.d.life.Go(func() {
		defer func() { <-sem }()
		_ = s.startWatches(s.ctx, c.unwatched, c.connSeq)() // the next check tries again
	})
}
