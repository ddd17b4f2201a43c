package pglock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sniblock/snib/internal/retry"
)

const (
	// refreshEvery is how often a process tells the server, in one statement, that its waiters are alive.
	refreshEvery = time.Second

	// waiterLife is how long a waiter counts that was not refreshed: so long one that died can hold up those behind it.
	waiterLife = 3 * time.Second

	// pollEvery is the least time between two looks, and the time between two where the server can't notify.
	pollEvery = 125 * time.Millisecond

	// linger is how long the connection for notifications stays when nobody waits or holds any more.
	linger = 5 * time.Second

	// listenAfter is how old a lease gets before a connection is opened for it alone.
	listenAfter = 200 * time.Millisecond
)

// waits are the attempts of a driver that wait in the store, and the leases whose holders want to be told of others. It
// runs a poller while somebody waits, and a listener while there are either.
type waits struct {
	mu        sync.Mutex
	attempts  map[string]*attempt // by nonce, also before they wait
	waiting   map[string]*attempt // by nonce: those that the server has queued
	leases    map[string][]*lease // by nonce: one for each request of its owner
	polling   bool
	soon      bool          // the listener will be started
	listening bool          // the goroutine runs
	connected bool          // and hears
	idle      time.Time     // since when there is nothing to hear
	kick      chan struct{} // of one, to the poller: look now
	now       bool          // and at all of them

	doubted  map[string]bool // nonces of leases that may have ended
	checking bool            // a goroutine finds out
	checked  time.Time       // when it last began to
}

func (w *waits) init() {
	w.attempts, w.waiting = map[string]*attempt{}, map[string]*attempt{}
	w.leases, w.doubted = map[string][]*lease{}, map[string]bool{}
	w.kick = make(chan struct{}, 1)
}

// add lets an attempt be hinted.
func (w *waits) add(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts[a.entry.Nonce] = a
}

func (w *waits) remove(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.attempts, a.entry.Nonce)
	delete(w.waiting, a.entry.Nonce)
	w.note()
}

// watch has the poller look after an attempt that the server has queued.
func (w *waits) watch(a *attempt, sleep time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attempts[a.entry.Nonce] != a {
		return
	}
	w.waiting[a.entry.Nonce] = a
	a.look = time.Now().Add(sleep)
	if !w.polling {
		w.polling = true
		a.d.life.Go(a.d.poll)
	} else {
		w.poke()
	}
	w.listen(a.d)
}

// tell has the listener tell a lease when another process waits for it, and when it is broken. If that is all that there is
// to hear, the listener starts a little later: most leases are over by then.
func (w *waits) tell(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[l.nonce] = append(w.leases[l.nonce], l)
	switch {
	case l.told != nil:
		w.listen(l.d)
	case !w.listening && !w.soon:
		w.soon = true
		time.AfterFunc(listenAfter, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.soon = false
			if len(w.leases) > 0 {
				w.listen(l.d)
			}
		})
	}
}

func (w *waits) untell(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(w.leases[l.nonce], func(other *lease) bool { return other == l })
	if w.leases[l.nonce] = left; len(left) == 0 {
		delete(w.leases, l.nonce)
		w.note()
	}
}

// told returns the leases of all nonces, or of one.
func (w *waits) told(nonces ...string) (all []*lease) {
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

// listen starts the listener. It is called with the mutex held.
func (w *waits) listen(d *Driver) {
	if d.session == nil && !w.listening && !d.life.Over() {
		w.listening = true
		d.life.Go(d.listen)
	}
}

// note notes since when the listener has nothing to do. It is called with the mutex held.
func (w *waits) note() {
	if len(w.waiting)+len(w.leases) == 0 {
		w.idle = time.Now()
	}
}

// none reports whether nobody waits in the store, or holds.
func (w *waits) none() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting)+len(w.leases) == 0
}

// wake hints the attempt with this nonce. Anybody can notify: hints that follow one another too soon are left to the poller.
func (w *waits) wake(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, now := w.attempts[nonce], time.Now()
	switch {
	case a == nil:
	case now.Sub(a.woken) >= pollEvery:
		a.woken = now
		a.wake()
	default:
		a.again = true
		w.poke()
	}
}

func (a *attempt) wake() {
	select {
	case a.hint <- struct{}{}:
	default: // it is about to look anyway
	}
}

// want tells the leases with this nonce that they are waited for.
func (w *waits) want(nonce string) {
	for _, l := range w.told(nonce) {
		l.wanted()
	}
}

// poke has the poller look when it must, which may be sooner than it thought. It is called with the mutex held.
func (w *waits) poke() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// hear notes whether the listener hears, and has the poller look at what may have been missed until now.
func (w *waits) hear(connected bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connected, w.now = connected, true
	w.poke()
}

// poll looks after the waiters until there are none: it keeps them alive in the store, and hints them when their turn
// has come and no notification said so. However many there are, it sends at most ten statements a second.
func (d *Driver) poll() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now() // a waiter is queued as alive
	last, rest := time.Time{}, time.Time{}
	var outage retry.Outage
	for {
		next, more := d.waits.next(last, refreshed)
		if !more {
			return
		}
		if next.Before(rest) {
			next = rest
		}
		timer.Reset(time.Until(next))
		select {
		case <-d.life.Done():
			return
		case <-d.waits.kick:
			continue
		case <-timer.C:
		}
		last = time.Now()
		refresh := last.Sub(refreshed) >= refreshEvery*9/10
		err := d.lookAtAll(refresh)
		if err == nil && refresh {
			refreshed = last
		}
		rest = outage.Rest(last, err, refreshEvery)
	}
}

// next returns when to look next, or that nobody waits and the poller is over.
func (w *waits) next(last, refreshed time.Time) (next time.Time, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.polling = false
		return next, false
	}
	next = refreshed.Add(refreshEvery)
	if w.now {
		next = last
	}
	for _, a := range w.waiting {
		if a.look.Before(next) {
			next = a.look
		}
		if due := last.Add(pollEvery * time.Duration(a.before+1)); !w.connected && due.Before(next) {
			next = due // it takes as many hand-overs until its turn comes
		}
		if again := a.woken.Add(pollEvery); a.again && again.Before(next) {
			next = again
		}
	}
	if least := last.Add(pollEvery); next.Before(least) {
		next = least
	}
	return next, true
}

// asked returns the attempts to look at, and their names.
func (w *waits) asked() (all map[string]*attempt, names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = false
	distinct := map[string]bool{}
	for _, a := range w.waiting {
		distinct[a.req.Name], a.again = true, false
	}
	return maps.Clone(w.waiting), slices.Collect(maps.Keys(distinct))
}

// lookAtAll reads the rows of all names that are waited for and hints the attempts whose turn has come.
func (d *Driver) lookAtAll(refresh bool) error {
	ctx, cancel := context.WithTimeout(d.life.Context(), waiterLife/2)
	defer cancel()
	asked, names := d.waits.asked()
	sql, args := d.sql.look, []any{names}
	if refresh {
		sql, args = d.sql.refresh, []any{names, slices.Collect(maps.Keys(asked)), waiterLife.Microseconds()}
	}
	seen := map[string]state{}
	err := d.query(ctx, sql, args, func(rows pgx.Rows) error {
		s, err := scanState(rows)
		seen[s.name] = s
		return err
	})
	if err != nil {
		return err
	}
	d.waits.mu.Lock()
	defer d.waits.mu.Unlock()
	for nonce, a := range asked {
		s := seen[a.req.Name]
		place, granted, sleep := s.turn(nonce)
		a.before = max(place, 0)
		if a.look = time.Now().Add(sleep); granted || place < 0 {
			a.look = time.Now().Add(refreshEvery)
			a.wake()
		}
	}
	return nil
}
