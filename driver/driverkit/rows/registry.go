package rows

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// ErrCantListen means that notifications can't reach the driver, whatever it does.
const ErrCantListen driver.Sentinel = "notifications can't reach the driver"

// ErrYielded means that the listener has given up its connection, see [Driver.MustYield].
const ErrYielded driver.Sentinel = "the server has no connection left for requests"

// A registry holds the attempts of a driver that wait in the store, and its leases. It runs a
// poller while attempts wait, a cleaner while cleanups are pending, and a listener while attempts
// wait or leases may get notifications.
type registry struct {
	d *Driver

	mu       sync.Mutex
	attempts map[string]*Attempt // by nonce, also before they are queued
	waiting  map[string]*Attempt // by nonce: those that the store has queued
	leases   map[string]*Lease   // by nonce: those that may get notifications

	// pendingCleanup has the removals to be retried, by nonce, and the releases, by name and id.
	pendingCleanup map[string]func(context.Context) error
	cleaning       bool // the goroutine of the cleaner runs

	lastArrival uint64        // of the attempt that was queued last
	polling     bool          // the goroutine of the poller runs
	pollerWake  chan struct{} // capacity 1: makes the poller compute its next poll again
	pollNow     bool          // the next poll is due at once

	listenerScheduled bool      // the listener starts after listenDelay
	listening         bool      // the goroutine of the listener runs
	connected         bool      // notifications arrive
	idleSince         time.Time // since when no notification is needed
}

func (w *registry) init(d *Driver) {
	w.d = d
	w.attempts, w.waiting, w.leases = map[string]*Attempt{}, map[string]*Attempt{}, map[string]*Lease{}
	w.pendingCleanup = map[string]func(context.Context) error{}
	w.pollerWake = make(chan struct{}, 1)
}

// addAttempt registers an attempt, which can be woken from then on.
func (w *registry) addAttempt(a *Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[a.Entry.Nonce] = a
}

func (w *registry) removeAttempt(a *Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, a.Entry.Nonce)
	delete(w.waiting, a.Entry.Nonce)
	w.noteIdle()
}

// addWaiting has the poller and the listener watch over an attempt that the store has queued. The
// row may change by itself after delay.
func (w *registry) addWaiting(a *Attempt, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempts[a.Entry.Nonce] != a {
		return
	}
	if a.arrival == 0 {
		w.lastArrival++
		a.arrival = w.lastArrival
	}
	w.waiting[a.Entry.Nonce] = a
	a.pollErr, a.silentSince = nil, time.Time{}
	a.checkAt = time.Now().Add(delay)
	w.startPoller()
	w.startListener()
}

// needsListener reports whether a lease may get notifications of which its holder wants to be told.
func (l *Lease) needsListener() bool {
	return l.grant.TellsWanted && l.Req.OnWanted != nil || l.d.backend.TellsBreak && l.Req.OnLost != nil
}

// addLease registers a lease, so that its holder learns of another
// process that waits, and of a Break. For a lease that needs notifications only of a Break, the
// listener starts after listenDelay.
func (w *registry) addLease(l *Lease) {
	if !l.needsListener() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[l.Nonce] = l
	switch {
	case l.grant.TellsWanted:
		w.startListener()
	case !w.listening && !w.listenerScheduled:
		w.listenerScheduled = true
		time.AfterFunc(listenDelay, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.listenerScheduled = false
			if len(w.leases) > 0 {
				w.startListener()
			}
		})
	}
}

func (w *registry) removeLease(l *Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[l.Nonce] != nil {
		delete(w.leases, l.Nonce)
		w.noteIdle()
	}
}

// LeasesOf returns the leases with these nonces, or all leases if no nonces are given. It omits
// leases that get no notifications.
func (d *Driver) LeasesOf(nonces ...string) (all []*Lease) {
	w := &d.registry
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(nonces) == 0 {
		return slices.Collect(maps.Values(w.leases))
	}
	for _, nonce := range nonces {
		if l := w.leases[nonce]; l != nil {
			all = append(all, l)
		}
	}
	return all
}

// IsAttempt reports whether an attempt of this driver with this nonce waits.
func (d *Driver) IsAttempt(nonce string) bool {
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	return d.registry.attempts[nonce] != nil
}

// recordCleanup records the result err of fn, which removes the entry with this key from its row.
// If the store was unavailable, or err is errRemoveAgain, the cleaner retries fn until the driver
// is closed. What maxCleanups leaves no room for is left to lapse, if it does.
func (w *registry) recordCleanup(key string, fn func(context.Context) error, lapses bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, pending := w.pendingCleanup[key]
	switch {
	case !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, errRemoveAgain):
		delete(w.pendingCleanup, key)
		return
	case lapses && !pending && len(w.pendingCleanup) >= maxCleanups:
		return
	}
	w.pendingCleanup[key] = fn
	if !w.cleaning && !w.d.Life.Over() {
		w.cleaning = w.d.Life.Go(w.runCleaner)
	}
}

// runCleaner retries the pending cleanups until there are none. It has a goroutine of its own: one
// row that another transaction has locked must not delay the heartbeats of waiters.
func (w *registry) runCleaner() {
	var outage driverkit.Outage
	for next := time.Now().Add(HeartbeatInterval); ; {
		select {
		case <-w.d.Life.Done():
			return
		case <-time.After(time.Until(next)):
		}
		began := time.Now()
		err := w.retryCleanups(outage.Timeout(HeartbeatTimeout / 2))
		next = began.Add(HeartbeatInterval)
		if rest := outage.Rest(began, err, HeartbeatInterval); rest.After(next) {
			next = rest
		}
		if w.isClean() {
			return
		}
	}
}

// isClean reports whether no cleanup is pending, and then marks the cleaner as stopped.
func (w *registry) isClean() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleaning = len(w.pendingCleanup) > 0
	return !w.cleaning
}

// retryCleanups retries the pending cleanups until the store is unavailable, which is its error: a
// store that comes back must not get a connection for each. The next ones are in another order.
func (w *registry) retryCleanups(timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(w.d.Life.Context(), timeout, errNoAnswer)
	defer cancel()
	w.mu.Lock()
	pending := maps.Clone(w.pendingCleanup)
	w.mu.Unlock()
	for key, fn := range pending {
		failed := fn(ctx)
		w.recordCleanup(key, fn, false, failed)
		if errors.Is(failed, driver.ErrUnavailable) {
			return failed
		}
	}
	return nil
}

// startPoller starts the poller, or makes it compute its next poll again. The caller must hold
// w.mu.
func (w *registry) startPoller() {
	switch {
	case w.polling:
		w.wakePoller()
	case !w.d.Life.Over():
		w.polling = w.d.Life.Go(w.runPoller)
	}
}

// wakePoller makes the poller compute the time of its next poll again. The caller must hold w.mu.
func (w *registry) wakePoller() {
	select {
	case w.pollerWake <- struct{}{}:
	default:
	}
}

// startListener starts the listener if necessary. The caller must hold w.mu.
func (w *registry) startListener() {
	if w.d.backend.Listen != nil && !w.listening && !w.d.Life.Over() {
		w.listening = w.d.Life.Go(w.runListener)
	}
}

// noteIdle notes the time if the listener is no longer needed. The caller must hold w.mu.
func (w *registry) noteIdle() {
	if len(w.waiting)+len(w.leases) == 0 {
		w.idleSince = time.Now()
	}
}

// Wake wakes the attempt with this nonce, after a notification. Anybody may be able to send
// notifications. If they follow one another too fast, Wake leaves the attempt to the poller.
func (d *Driver) Wake(nonce string) {
	w := &d.registry
	w.mu.Lock()
	defer w.mu.Unlock()
	a, now := w.attempts[nonce], time.Now()
	switch {
	case a == nil:
	case now.Sub(a.lastHint) >= d.backend.PollInterval:
		a.lastHint = now
		a.wake()
	default:
		a.hintPending = true
		w.wakePoller()
	}
}

// WakeFirst wakes the attempt of this driver that has waited longest for the lock of this name. It
// returns false if there is none.
func (d *Driver) WakeFirst(name string) bool {
	w := &d.registry
	w.mu.Lock()
	defer w.mu.Unlock()
	var first *Attempt
	for _, a := range w.waiting {
		if a.Req.Name == name && (first == nil || a.arrival < first.arrival) {
			first = a
		}
	}
	if first == nil {
		return false
	}
	first.wake()
	return true
}

// Connected records that notifications arrive, and makes the poller look for changes whose
// notifications were missed.
func (d *Driver) Connected() { d.registry.setConnected(true) }

// setConnected records whether notifications arrive, and makes the poller look for changes whose
// notifications were missed. It returns whether notifications arrived before.
func (w *registry) setConnected(connected bool) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.connected
	w.connected, w.pollNow = connected, true
	w.wakePoller()
	return before
}

// runListener keeps a connection for notifications open while it is needed. The pause before it
// connects again doubles each time, up to 5 s. If the last connection worked, the pause is at most
// half a second: without notifications, waiters and holders depend on polls and renewals. It does
// not connect after a request has met a server without a connection left.
func (w *registry) runListener() {
	const shortest, longest, longestAfterUse = 50 * time.Millisecond, 5 * time.Second, 500 * time.Millisecond
	pause := shortest
	for {
		began := time.Now()
		err := error(ErrYielded)
		if !w.d.MustYield() {
			err = w.d.backend.Listen()
		}
		if err == nil || w.d.Life.Over() {
			return
		}
		pause *= 2
		switch wasConnected := w.setConnected(false); {
		case time.Since(began) > longest:
			pause = shortest
		case wasConnected:
			pause = min(pause, longestAfterUse)
		}
		if errors.Is(err, ErrCantListen) {
			pause = longest
		}
		select {
		case <-time.After(min(pause, longest)):
		case <-w.d.Life.Done():
			return
		}
		if w.d.StopListening() {
			return
		}
	}
}

// StopListening marks the listener as stopped, and returns true, if it has not been needed for a
// while. It first forgets the leases that have lapsed, of which nobody may tell.
func (d *Driver) StopListening() bool {
	w := &d.registry
	w.mu.Lock()
	defer w.mu.Unlock()
	now := driver.Now()
	maps.DeleteFunc(w.leases, func(_ string, l *Lease) bool { return l.confirmed.Add(l.Req.TTL).Reached(now) })
	if len(w.waiting)+len(w.leases) > 0 || time.Since(w.idleSince) < idleTimeout {
		return false
	}
	w.listening, w.connected = false, false
	return true
}

// MustYield reports whether a request has met a server without a connection left in the last
// yieldTime. The listener must then give its connection up: if the listeners of all processes keep
// theirs, nobody can send the request that they listen for.
func (d *Driver) MustYield() bool {
	last := d.lastFull.Load()
	return last != nil && time.Since(*last) < yieldTime // by a clock that nobody sets
}

// NoteFull notes whether err says that the server has no connection left, see [Driver.MustYield].
// The backend calls it for all errors of its statements.
func (d *Driver) NoteFull(err error) {
	if errors.Is(err, driver.ErrFull) {
		d.lastFull.Store(new(time.Now()))
	}
}

// runPoller polls until no attempt waits any more. It keeps the waiters alive in the store, and
// wakes the attempts that can be granted but were not notified. However many attempts wait, it
// polls at most once in each interval.
func (w *registry) runPoller() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	lastHeartbeat := time.Now() // an attempt is alive when it is queued
	lastPoll, notBefore := time.Time{}, time.Time{}
	var outage driverkit.Outage
	for {
		next, more := w.nextPoll(lastPoll, lastHeartbeat)
		if !more {
			return
		}
		if next.Before(notBefore) {
			next = notBefore
		}
		timer.Reset(time.Until(next))
		select {
		case <-w.d.Life.Done():
			return
		case <-w.pollerWake:
			continue
		case <-timer.C:
		}
		lastPoll = time.Now()
		heartbeatDue := lastPoll.Sub(lastHeartbeat) >= HeartbeatInterval*9/10
		err := w.poll(heartbeatDue, outage.Timeout(HeartbeatTimeout/2))
		if heartbeatDue && err == nil {
			lastHeartbeat = lastPoll
		}
		notBefore = outage.Rest(lastPoll, err, HeartbeatInterval)
	}
}

// recordPoll records that a poll for the row of an attempt was sent at sentAt and ended with err.
// It wakes the attempt if that must give up. The caller must hold w.mu.
func (w *registry) recordPoll(a *Attempt, sentAt time.Time, err error) {
	if a.pollErr = nil; errors.Is(err, driver.ErrUnavailable) {
		a.pollErr = err
	}
	a.Req.NoteWait(a.pollErr)
	switch {
	case a.pollErr == nil || errors.Is(err, driver.ErrFull): // the store has answered
		a.silentSince = time.Time{}
	case a.silentSince.IsZero():
		a.silentSince = sentAt
	case a.mustGiveUp():
		a.wake()
	}
}

// mustGiveUp reports whether the store has answered neither the attempt nor a poll for its row for
// [driver.Request.RetryLimit]. The caller must hold registry.mu.
func (a *Attempt) mustGiveUp() bool {
	return !a.silentSince.IsZero() && time.Since(a.silentSince) >= a.Req.RetryLimit()
}

// outageError returns the error with which an attempt must give up, or nil.
func (w *registry) outageError(a *Attempt) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.mustGiveUp() {
		return a.pollErr
	}
	return nil
}

// nextPoll returns the time of the next poll. If there is nothing to do, it marks the poller as
// stopped, and more is false.
func (w *registry) nextPoll(lastPoll, lastHeartbeat time.Time) (next time.Time, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.polling = false
		return next, false
	}
	next = lastHeartbeat.Add(HeartbeatInterval)
	if w.pollNow {
		next = lastPoll
	}
	interval := w.d.backend.PollInterval
	for _, a := range w.waiting {
		if a.checkAt.Before(next) {
			next = a.checkAt
		}
		if due := lastPoll.Add(interval * time.Duration(a.ahead+1)); !w.connected && due.Before(next) {
			next = due // its turn comes after ahead+1 hand-overs at the earliest
		}
		if again := a.lastHint.Add(interval); a.hintPending && again.Before(next) {
			next = again
		}
	}
	if least := lastPoll.Add(interval); next.Before(least) {
		next = least
	}
	return next, true
}

// poll reads the rows of all names that attempts wait for, and wakes the attempts that can be
// granted or are no longer queued. It also wakes an attempt whose row is malformed: the next round
// returns the error.
func (w *registry) poll(heartbeatDue bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(w.d.Life.Context(), timeout, errNoAnswer)
	defer cancel()
	waiting, names := w.waitingAttempts()
	if len(waiting) == 0 {
		return nil // the last one has given up just now
	}
	sentAt := time.Now()
	snapshot, err := w.d.backend.Poll(ctx, names, slices.Collect(maps.Keys(waiting)), heartbeatDue)
	w.mu.Lock()
	defer w.mu.Unlock()
	for nonce, a := range waiting {
		if w.waiting[nonce] != a {
			continue // Acquire may have returned meanwhile
		}
		s := snapshot[a.Req.Name]
		if s == nil {
			s = &State{Err: err}
		}
		w.recordPoll(a, sentAt, s.Err)
		if err != nil || a.pollErr != nil {
			a.checkAt = time.Now().Add(HeartbeatInterval)
			continue
		}
		place, grantable, delay := s.Position(Entry{Nonce: nonce})
		a.ahead = max(place, 0)
		if a.checkAt = time.Now().Add(delay); grantable || place < 0 {
			a.checkAt = time.Now().Add(HeartbeatInterval)
			a.wake()
		}
	}
	return err
}

// waitingAttempts returns the attempts to poll for, and the distinct names of their locks.
func (w *registry) waitingAttempts() (all map[string]*Attempt, names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pollNow = false
	distinct := map[string]bool{}
	for _, a := range w.waiting {
		distinct[a.Req.Name], a.hintPending = true, false
	}
	return maps.Clone(w.waiting), slices.Collect(maps.Keys(distinct))
}
