package mysqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

const (
	// heartbeatInterval is how often a process tells the server, in one statement, that it lives,
	// and polls the rows that it waits for, in another.
	heartbeatInterval = time.Second

	// heartbeatTimeout is how long a process counts without a heartbeat. For that long its dead
	// waiters can hold up those behind them.
	heartbeatTimeout = 3 * time.Second

	// pollInterval is the least time between two polls, and the time between two polls where the
	// server does not watch for the driver.
	pollInterval = 100 * time.Millisecond

	// idleTimeout is how long the connection that watches is kept when it is no longer needed.
	idleTimeout = 5 * time.Second
)

// processPrefix begins the names of rows that stand for processes. No lock has a NUL in its name.
const processPrefix = "\x00p"

// A waiterRegistry holds the attempts of a driver that wait in the store, and the leases whose
// holders want to be told of other waiters. It runs a poller while attempts wait or cleanups are
// pending, and a watcher while there are waiting attempts or leases.
type waiterRegistry struct {
	mu       sync.Mutex
	attempts map[string]*attempt // by nonce, also before they are queued
	waiting  map[string]*attempt // by nonce: those that the server has queued
	leases   map[string]*lease   // by nonce

	// The nonces of entries that are being removed, and the removals to be retried.
	removals       map[string]bool
	pendingCleanup map[string]func(context.Context) error

	pollErr     error                 // why the poller's last request failed, or nil
	lastArrival uint64                // of the attempt that was queued last
	processes   map[string]processRow // other processes that wait

	// Since when the hold in a row has been unchanged.
	observations map[observation]time.Time

	heartbeatLock chan struct{} // of one: serializes heartbeats
	lastHeartbeat time.Time     // when this process sent its last heartbeat

	polling    bool
	watching   bool          // the goroutine of the watcher runs
	connected  bool          // the server watches
	idleSince  time.Time     // since when no watcher is needed
	pollerWake chan struct{} // of one: makes the poller compute its next poll again
	pollNow    bool          // the next poll is due at once
}

func (w *waiterRegistry) init() {
	w.attempts, w.waiting, w.leases = map[string]*attempt{}, map[string]*attempt{}, map[string]*lease{}
	w.removals, w.pendingCleanup, w.processes = map[string]bool{}, map[string]func(context.Context) error{}, map[string]processRow{}
	w.heartbeatLock, w.pollerWake = make(chan struct{}, 1), make(chan struct{}, 1)
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

// addWaiting has the poller and the watcher look after an attempt that the server has queued. The
// row may change by itself after delay.
func (w *waiterRegistry) addWaiting(a *attempt, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempts[a.entry.Nonce] != a {
		return
	}
	if a.arrival == 0 {
		w.lastArrival++
		a.arrival = w.lastArrival
	}
	w.waiting[a.entry.Nonce] = a
	a.checkAt = time.Now().Add(delay)
	w.startPoller(a.d)
	w.startWatcher(a.d)
}

// markRemoving marks the entry of an attempt or a lease that is being removed from its row. The
// owner may acquire again in the meantime, and must not get that entry.
func (w *waiterRegistry) markRemoving(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removals[nonce] = true
}

// isRemoving reports whether an entry is being removed.
func (w *waiterRegistry) isRemoving(nonce string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removals[nonce]
}

// markRemoved undoes markRemoving.
func (w *waiterRegistry) markRemoved(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.removals, nonce)
	delete(w.pendingCleanup, nonce)
}

// cleanUp removes an entry with fn. If the server is unavailable, or fn returns errRemoveAgain, the
// poller retries until the driver is closed.
func (d *Driver) cleanUp(ctx context.Context, nonce string, fn func(context.Context) error) {
	leave, err := d.releasing.enter(ctx)
	if err == nil {
		err = fn(ctx)
		leave()
	}
	d.registry.recordCleanup(d, nonce, fn, err)
}

// recordCleanup records the result err of the cleanup fn. If err is transient or errRemoveAgain,
// the poller retries fn.
func (w *waiterRegistry) recordCleanup(d *Driver, nonce string, fn func(context.Context) error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, errRemoveAgain) {
		delete(w.removals, nonce)
		return
	}
	w.pendingCleanup[nonce], w.removals[nonce] = fn, true
	w.startPoller(d)
}

// pollError returns the error of the poller's last request, or nil if the server answered it.
func (w *waiterRegistry) pollError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pollErr
}

// addLease has the watcher tell a lease when another process waits.
func (w *waiterRegistry) addLease(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[l.nonce] = l
	w.startWatcher(l.d)
}

func (w *waiterRegistry) removeLease(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[l.nonce] == l {
		delete(w.leases, l.nonce)
		w.noteIdle()
	}
}

// startPoller starts the poller, or makes it compute its next poll again. The caller must hold
// w.mu.
func (w *waiterRegistry) startPoller(d *Driver) {
	switch {
	case w.polling:
		w.wakePoller()
	case !d.life.Over():
		w.polling = true
		d.life.Go(d.runPoller)
	}
}

// startWatcher starts the watcher if necessary. The caller must hold w.mu.
func (w *waiterRegistry) startWatcher(d *Driver) {
	if !w.watching && !d.life.Over() {
		w.watching = true
		d.life.Go(d.runWatcher)
	}
}

// noteIdle notes the time if the watcher is no longer needed. The caller must hold w.mu.
func (w *waiterRegistry) noteIdle() {
	if len(w.waiting)+len(w.leases) == 0 {
		w.idleSince = time.Now()
	}
}

// wakePoller makes the poller compute the time of its next poll again. The caller must hold w.mu.
func (w *waiterRegistry) wakePoller() {
	select {
	case w.pollerWake <- struct{}{}:
	default:
	}
}

// setConnected records whether the server watches, and makes the poller look for what may have
// been missed.
func (w *waiterRegistry) setConnected(connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected, w.pollNow = connected, true
	w.wakePoller()
}

func (a *attempt) wake() {
	select {
	case a.hint <- struct{}{}:
	default: // it is about to run a round anyway
	}
}

// onSignal handles a signal to this driver in the row of a name: it wakes the first of the
// driver's attempts there. If there is none, the signal is for a holder, or has no effect.
func (d *Driver) onSignal(name string) {
	w := &d.registry
	w.mu.Lock()
	var first *attempt
	for _, a := range w.waiting {
		if a.req.Name == name && (first == nil || a.arrival < first.arrival) {
			first = a
		}
	}
	if first != nil {
		first.wake()
	}
	var leases []*lease
	for _, l := range w.leases {
		if l.req.Name == name {
			leases = append(leases, l)
		}
	}
	w.mu.Unlock()
	if first != nil && len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), heartbeatTimeout, errNoAnswer)
	defer cancel()
	// If this fails, renewals and the poller find out.
	_ = d.change(ctx, name, func(s *state) (bool, error) {
		for _, l := range leases {
			if s.othersWait(d.id) {
				l.notifyWanted()
			}
		}
		return s.clearSignal(d.id) || s.reaped, nil
	})
}

// ensureHeartbeat sends a heartbeat of this process, unless there was one recently.
func (w *waiterRegistry) ensureHeartbeat(ctx context.Context, d *Driver) error {
	select {
	case w.heartbeatLock <- struct{}{}:
		defer func() { <-w.heartbeatLock }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock()
	recent := time.Since(w.lastHeartbeat) < heartbeatInterval*9/10
	w.mu.Unlock()
	if recent {
		return nil
	}
	sentAt, timeout := time.Now(), heartbeatTimeout.Microseconds()
	_, err := d.exec(ctx, d.sql.heartbeat, []byte(processPrefix+d.id), timeout, timeout)
	if err == nil {
		w.mu.Lock()
		w.lastHeartbeat = sentAt
		w.mu.Unlock()
	}
	return err
}

// deleteProcessRow removes the row of this process, which must have no waiters any more.
func (w *waiterRegistry) deleteProcessRow(d *Driver) {
	w.mu.Lock()
	never := w.lastHeartbeat.IsZero()
	w.mu.Unlock()
	if never {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), driverkit.CleanupTimeout, errNoAnswer)
	defer cancel()
	// If this fails, the process soon counts as dead.
	_, _ = d.exec(ctx, expandNames(d.sql.deleteRows, 1), []byte(processPrefix+d.id))
}

// reapDead removes dead entries from states: waiters whose process sends no heartbeats, waiters
// of this process that the driver does not know, holders that expireUnchanged finds, and holders
// whose session has ended.
func (d *Driver) reapDead(ctx context.Context, states map[string]*state) error {
	if err := d.reapSessions(ctx, states); err != nil {
		return err
	}
	w := &d.registry
	w.mu.Lock()
	var unknown []string
	for _, s := range states {
		w.expireUnchanged(s)
		s.reap(func(e entry) bool { return e.process() == d.id && w.attempts[e.Nonce] == nil })
		for _, e := range s.waiters {
			if id := e.process(); id != d.id && !w.processes[id].isLive(s.now) && !slices.Contains(unknown, processPrefix+id) {
				unknown = append(unknown, processPrefix+id)
			}
		}
	}
	w.mu.Unlock()
	if len(unknown) == 0 {
		return nil
	}
	live := map[string]int64{}
	for chunk := range slices.Chunk(unknown, batchSizes[len(batchSizes)-1]) {
		n := batchSize(len(chunk))
		err := d.query(ctx, expandNames(d.sql.readLive, n), nameArgs(chunk, n), func(rows *sql.Rows) error {
			var name string
			var ends int64
			err := rows.Scan(&name, &ends)
			live[name] = ends
			return err
		})
		if err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range unknown {
		id := name[len(processPrefix):]
		switch ends := live[name]; ends {
		case 0:
			delete(w.processes, id)
		case w.processes[id].ends: // no heartbeat since then
		default:
			w.processes[id] = processRow{ends, time.Now()}
		}
	}
	for _, s := range states {
		s.reap(func(e entry) bool {
			return slices.Contains(unknown, processPrefix+e.process()) && !w.processes[e.process()].isLive(s.now)
		})
	}
	return nil
}

// reap removes the waiters that are dead.
func (s *state) reap(dead func(entry) bool) {
	before := len(s.waiters)
	s.waiters = slices.DeleteFunc(s.waiters, dead)
	s.reaped = s.reaped || len(s.waiters) < before
}

// runPoller polls until no attempt waits any more and no cleanup is pending. It keeps the process
// alive in the store, and wakes the waiters that can be granted but were not signaled. However
// many there are, it polls at most once in each pollInterval.
func (d *Driver) runPoller() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// An attempt has a heartbeat when it is queued.
	lastPoll, lastHeartbeat, notBefore := time.Time{}, time.Now(), time.Time{}
	var outage, pollOutage driverkit.Outage // a cleanup may fail for a reason of its own
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
		var err error
		timeout := outage.Timeout(heartbeatTimeout / 2)
		if lastPoll.Sub(lastHeartbeat) >= heartbeatInterval*9/10 {
			if err = d.maintain(timeout); err == nil {
				lastHeartbeat = lastPoll
			}
		}
		pollErr := d.pollOnce(timeout)
		notBefore = outage.Rest(lastPoll, cmp.Or(pollErr, err), heartbeatInterval)
		if pollOutage.Rest(lastPoll, pollErr, 0); pollOutage.IsOver() {
			d.registry.failWaiting(pollErr)
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

// nextPoll returns the time of the next poll, and true. If there is nothing to do, it marks the
// poller as stopped and returns false.
func (w *waiterRegistry) nextPoll(lastPoll, lastHeartbeat time.Time) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := lastHeartbeat.Add(heartbeatInterval)
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
	}
	if len(w.waiting)+len(w.pendingCleanup) == 0 {
		w.polling = false
		return next, false
	}
	if least := lastPoll.Add(pollInterval); next.Before(least) {
		next = least
	}
	return next, true
}

// maintain sends the heartbeat of the process, and retries pending cleanups.
func (d *Driver) maintain(timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), timeout, errNoAnswer)
	defer cancel()
	d.registry.mu.Lock()
	pending := maps.Clone(d.registry.pendingCleanup)
	d.registry.mu.Unlock()
	var err error
	for nonce, fn := range pending {
		switch failed := fn(ctx); {
		case errors.Is(failed, driver.ErrUnavailable):
			err = failed
		case !errors.Is(failed, errRemoveAgain):
			d.registry.markRemoved(nonce)
		}
	}
	err = cmp.Or(d.registry.ensureHeartbeat(ctx, d), err)
	d.registry.setPollError(err)
	return err
}

// setPollError records whether the server answered the poller's last request.
func (w *waiterRegistry) setPollError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pollErr = nil; errors.Is(err, driver.ErrUnavailable) {
		w.pollErr = err
	}
}

// pollOnce reads the rows that attempts wait for, and wakes the attempts that can be granted or
// are no longer queued. An attempt whose row is malformed is woken, too: its next round reports
// that.
func (d *Driver) pollOnce(timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), timeout, errNoAnswer)
	defer cancel()
	w := &d.registry
	w.mu.Lock()
	w.pollNow = false
	waiting := maps.Clone(w.waiting)
	w.mu.Unlock()
	set := map[string]bool{}
	for _, a := range waiting {
		set[a.req.Name] = true
	}
	snapshot, err := d.read(ctx, slices.Collect(maps.Keys(set)))
	if w.setPollError(err); err != nil {
		return err
	}
	w.observe(snapshot)
	w.mu.Lock()
	defer w.mu.Unlock()
	for nonce, a := range waiting {
		s := snapshot[a.req.Name]
		if s == nil {
			s = &state{}
		}
		place, grantable, delay := s.position(nonce, false)
		a.ahead = max(place, 0)
		if a.checkAt = time.Now().Add(delay); grantable || place < 0 {
			a.checkAt = time.Now().Add(heartbeatInterval)
			a.wake()
		}
	}
	return nil
}
