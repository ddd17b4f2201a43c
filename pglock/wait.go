package pglock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// heartbeatInterval is how often a process tells the server, in one statement, that its
	// waiters live.
	heartbeatInterval = time.Second

	// heartbeatTimeout is how long a waiter counts without a heartbeat. For that long a dead
	// waiter can hold up those behind it.
	heartbeatTimeout = 3 * time.Second

	// pollInterval is the least time between two polls, and the time between two polls where the
	// server can't notify the driver.
	pollInterval = 125 * time.Millisecond

	// idleTimeout is how long the connection for notifications is kept when nobody waits or holds
	// any more.
	idleTimeout = 5 * time.Second

	// listenDelay is how old a lease must be before a connection is opened for it alone.
	listenDelay = 200 * time.Millisecond
)

// A waiterRegistry holds the attempts of a driver that wait in the store, and its leases, both of
// which may get notifications. It runs a poller while attempts wait. Without a session, it runs a
// listener while there are waiting attempts or leases.
type waiterRegistry struct {
	mu                sync.Mutex
	attempts          map[string]*attempt // by nonce, also before they are queued
	waiting           map[string]*attempt // by nonce: those that the server has queued
	leases            map[string][]*lease // by nonce: one for each request of its owner
	polling           bool
	listenerScheduled bool          // the listener starts after listenDelay
	listening         bool          // the goroutine of the listener runs
	connected         bool          // notifications arrive
	idleSince         time.Time     // since when no notification is needed
	pollerWake        chan struct{} // of one: makes the poller compute its next poll again
	pollNow           bool          // the next poll is due at once

	unverified   map[string]bool // nonces of leases that may have ended
	verifying    bool            // the goroutine of the verifier runs
	lastVerified time.Time       // when the verifier last sent a request
}

func (w *waiterRegistry) init() {
	w.attempts, w.waiting = map[string]*attempt{}, map[string]*attempt{}
	w.leases, w.unverified = map[string][]*lease{}, map[string]bool{}
	w.pollerWake = make(chan struct{}, 1)
}

// addAttempt registers an attempt, which can be woken from then on.
func (w *waiterRegistry) addAttempt(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[a.entry.Nonce] = a
}

func (w *waiterRegistry) removeAttempt(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, a.entry.Nonce)
	delete(w.waiting, a.entry.Nonce)
	w.noteIdle()
}

// addWaiting has the poller watch an attempt that the server has queued. The row may change by
// itself after delay.
func (w *waiterRegistry) addWaiting(a *attempt, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempts[a.entry.Nonce] != a {
		return
	}
	w.waiting[a.entry.Nonce] = a
	a.checkAt = time.Now().Add(delay)
	if !w.polling {
		w.polling = true
		a.d.life.Go(a.d.runPoller)
	} else {
		w.wakePoller()
	}
	w.startListener(a.d)
}

// addLease registers a lease for notifications that another process waits, and that the lease was
// broken. For a lease that only needs the latter, the listener starts a little later, because
// most leases have ended by then.
func (w *waiterRegistry) addLease(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[l.nonce] = append(w.leases[l.nonce], l)
	switch {
	case l.wantedCh != nil:
		w.startListener(l.d)
	case !w.listening && !w.listenerScheduled:
		w.listenerScheduled = true
		time.AfterFunc(listenDelay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listenerScheduled = false
			if len(w.leases) > 0 {
				w.startListener(l.d)
			}
		})
	}
}

func (w *waiterRegistry) removeLease(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.leases[l.nonce], func(other *lease) bool { return other == l })
	if w.leases[l.nonce] = left; len(left) == 0 {
		delete(w.leases, l.nonce)
		w.noteIdle()
	}
}

// leasesOf returns the leases with these nonces, or all leases if there are no nonces.
func (w *waiterRegistry) leasesOf(nonces ...string) (all []*lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(nonces) == 0 {
		return slices.Concat(slices.Collect(maps.Values(w.leases))...)
	}
	for _, nonce := range nonces {
		all = append(all, w.leases[nonce]...)
	}
	return all
}

// startListener starts the listener if necessary. The caller must hold w.mu.
func (w *waiterRegistry) startListener(d *Driver) {
	if d.session == nil && !w.listening && !d.life.Over() {
		w.listening = true
		d.life.Go(d.runListener)
	}
}

// noteIdle notes the time if the listener is no longer needed. The caller must hold w.mu.
func (w *waiterRegistry) noteIdle() {
	if len(w.waiting)+len(w.leases) == 0 {
		w.idleSince = time.Now()
	}
}

// isIdle reports whether there are neither queued attempts nor leases.
func (w *waiterRegistry) isIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)+len(w.leases) == 0
}

// wake wakes the attempt with this nonce. Anybody can send notifications, so those that follow
// one another too fast are left to the poller.
func (w *waiterRegistry) wake(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, now := w.attempts[nonce], time.Now()
	switch {
	case a == nil:
	case now.Sub(a.lastHint) >= pollInterval:
		a.lastHint = now
		a.wake()
	default:
		a.hintPending = true
		w.wakePoller()
	}
}

func (a *attempt) wake() {
	select {
	case a.hint <- struct{}{}:
	default: // it is about to run a round anyway
	}
}

// notifyWanted tells the holders of the leases with this nonce that another process waits.
func (w *waiterRegistry) notifyWanted(nonce string) {
	for _, l := range w.leasesOf(nonce) {
		l.notifyWanted()
	}
}

// wakePoller makes the poller compute the time of its next poll again. The caller must hold w.mu.
func (w *waiterRegistry) wakePoller() {
	select {
	case w.pollerWake <- struct{}{}:
	default:
	}
}

// setConnected records whether notifications arrive, and makes the poller look for what may have
// been missed. It returns whether they arrived before.
func (w *waiterRegistry) setConnected(connected bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.connected
	w.connected, w.pollNow = connected, true
	w.wakePoller()
	return before
}

// runPoller polls until no attempt waits any more. It keeps the waiters alive in the store, and
// wakes those that can be granted but were not notified. However many there are, it sends at most
// one statement in each pollInterval.
func (d *Driver) runPoller() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lastHeartbeat := time.Now() // an attempt is alive when it is queued
	lastPoll, notBefore := time.Time{}, time.Time{}
	var outage driverkit.Outage
	for {
		next, more := d.registry.nextPoll(lastPoll, lastHeartbeat)
		if !more {
			return
		}
		if next.Before(notBefore) {
			next = notBefore
		}
		timer.Reset(time.Until(next))
		select {
		case <-d.life.Done():
			return
		case <-d.registry.pollerWake:
			continue
		case <-timer.C:
		}
		lastPoll = time.Now()
		heartbeatDue := lastPoll.Sub(lastHeartbeat) >= heartbeatInterval*9/10
		err := d.pollOnce(heartbeatDue, outage.Timeout(heartbeatTimeout/2))
		if err == nil && heartbeatDue {
			lastHeartbeat = lastPoll
		}
		notBefore = outage.Rest(lastPoll, err, heartbeatInterval)
		if outage.IsOver() {
			d.registry.failWaiting(err)
		}
	}
}

// failWaiting ends the attempts that wait: the server has not answered for
// [driver.RetryTimeout].
func (w *waiterRegistry) failWaiting(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.waiting {
		a.outageErr = err
		a.wake()
	}
}

// outageError returns the error with which failWaiting has ended an attempt, or nil.
func (w *waiterRegistry) outageError(a *attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a.outageErr
}

// nextPoll returns the time of the next poll. If no attempt waits, it marks the poller as
// stopped, and more is false.
func (w *waiterRegistry) nextPoll(lastPoll, lastHeartbeat time.Time) (next time.Time, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.polling = false
		return next, false
	}
	next = lastHeartbeat.Add(heartbeatInterval)
	if w.pollNow {
		next = lastPoll
	}
	for _, a := range w.waiting {
		if a.checkAt.Before(next) {
			next = a.checkAt
		}
		if due := lastPoll.Add(pollInterval * time.Duration(a.ahead+1)); !w.connected && due.Before(next) {
			next = due // so many hand-overs come before its own
		}
		if again := a.lastHint.Add(pollInterval); a.hintPending && again.Before(next) {
			next = again
		}
	}
	if least := lastPoll.Add(pollInterval); next.Before(least) {
		next = least
	}
	return next, true
}

// waitingAttempts returns the attempts to poll for, and the distinct names of their locks.
func (w *waiterRegistry) waitingAttempts() (all map[string]*attempt, names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pollNow = false
	distinct := map[string]bool{}
	for _, a := range w.waiting {
		distinct[a.req.Name], a.hintPending = true, false
	}
	return maps.Clone(w.waiting), slices.Collect(maps.Keys(distinct))
}

// pollOnce reads the rows of all names that attempts wait for, and wakes the attempts that can be
// granted or are no longer queued. An attempt whose row is malformed is woken, too: its next round
// reports that.
func (d *Driver) pollOnce(heartbeatDue bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), timeout, fmt.Errorf("%w: no answer within %v", driver.ErrUnavailable, timeout))
	defer cancel()
	waiting, names := d.registry.waitingAttempts()
	sql, args := d.sql.read, []any(nil)
	if heartbeatDue {
		sql, args = d.sql.heartbeat, []any{slices.Collect(maps.Keys(waiting)), heartbeatTimeout.Microseconds()}
	}
	snapshot, _, err := d.readStates(ctx, sql, names, args...)
	if err != nil {
		return err
	}
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	for nonce, a := range waiting {
		s := snapshot[a.req.Name]
		place, grantable, delay := s.position(nonce)
		a.ahead = max(place, 0)
		if a.checkAt = time.Now().Add(delay); grantable || place < 0 {
			a.checkAt = time.Now().Add(heartbeatInterval)
			a.wake()
		}
	}
	return nil
}
