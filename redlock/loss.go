package redlock

import (
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
)

// breakPrefix begins the name of the channel on which a driver learns that its leases were
// broken by force. The prefix that all nonces of the driver share follows.
const breakPrefix = "snib.rb:"

// breakChannel returns the channel of the driver that made a nonce.
func breakChannel(nonce string) string {
	id, _, _ := strings.Cut(nonce, ".")
	return breakPrefix + id
}

// After a hint, the holder checks its lease at once. It repeats the check for
// [driver.AnswerTimeout] while some nodes have lost the lease and others still have it, because a
// break may not have reached a majority yet; a node that it reaches later sends a hint of its own.
// The pauses lie between these limits.
const (
	minRecheckPause = 5 * time.Millisecond
	maxRecheckPause = time.Second
)

// addLease makes the driver check the lease when a node publishes that it was broken.
func (l *listener) addLease(le *lease) {
	if le.req.OnLost == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	le.topic = l.addUser(breakChannel(le.round.nonce))
	le.topic.leases[le.round.nonce] = le
	l.startSubscribers()
}

// removeLease undoes addLease.
func (l *listener) removeLease(le *lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	le.leaveTopic()
}

// leaveTopic ends the subscription of a lease. It is called with listener.mu held.
func (l *lease) leaveTopic() {
	if l.topic == nil {
		return
	}
	delete(l.topic.leases, l.round.nonce)
	l.topic.removeUser()
	l.topic = nil
}

// checkLease starts a check of a lease. It is called with l.mu held.
func (l *listener) checkLease(le *lease) {
	switch {
	case l.closed:
	case le.checking:
		le.hinted = true
	default:
		le.checking = true
		l.d.background.Go(le.check)
	}
}

// check asks the nodes whether the lease still exists, and tells the holder if it does not. A
// forged message can trigger a check. If messages keep coming while it runs, the next check
// begins minRecheckPause later.
func (l *lease) check() {
	end := time.Now().Add(driver.AnswerTimeout)
	for pause := minRecheckPause; ; {
		e := l.ask()
		switch {
		case e == nil: // released, or the holder knows of the loss
			return
		case e.foundLost:
			l.d.listener.removeLease(l)
			l.req.OnLost(driver.ErrLost)
			return
		case e.anyRefused() && time.Now().Before(end):
			pause = min(2*pause, maxRecheckPause)
		case l.hintedAgain():
			pause, end = minRecheckPause, time.Now().Add(driver.AnswerTimeout)
		default:
			return
		}
		select {
		case <-time.After(pause):
		case <-l.d.life.Done():
			return
		}
	}
}

// ask asks the nodes once. It returns nil if the lease has ended before, or the driver is closed.
func (l *lease) ask() *extension {
	select {
	case l.d.listener.checks <- struct{}{}:
		defer func() { <-l.d.listener.checks }()
	case <-l.d.life.Done():
		return nil
	}
	e := l.extend(true)
	if e != nil {
		timer := time.NewTimer(l.d.conf.timeout)
		defer timer.Stop()
		e.wait(l.d.life.Context(), timer)
	}
	return e
}

// hintedAgain reports whether another hint has come since the last check began. If not,
// checking is over.
func (l *lease) hintedAgain() bool {
	l.d.listener.mu.Lock()
	defer l.d.listener.mu.Unlock()
	l.checking, l.hinted = l.hinted, false
	return l.checking
}
