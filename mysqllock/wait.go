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
	"github.com/sniblock/snib/internal/life"
	"github.com/sniblock/snib/internal/retry"
)

const (
	// refreshEvery is how often a process tells the server, in one statement, that it lives, and looks at the rows that it
	// waits for, in another.
	refreshEvery = time.Second

	// waiterLife is for how long a process counts that does not say so: so long its waiters can hold up those behind them.
	waiterLife = 3 * time.Second

	// pollEvery is the least time between two looks, and the time between two where the server does not watch for us.
	pollEvery = 100 * time.Millisecond

	// linger is how long the connection that watches stays when nobody waits any more.
	linger = 5 * time.Second
)

// processes is what the names of rows begin with that stand for processes: no lock has a NUL in its name.
const processes = "\x00p"

// waits are the attempts of a driver that wait in the store, and the leases whose holders want to be told of others. It
// runs a poller while somebody waits, and a watcher while there are either.
type waits struct {
	mu           sync.Mutex
	attempts     map[string]*attempt                    // by nonce, also before they wait
	waiting      map[string]*attempt                    // by nonce: those that the server has queued
	leases       map[string]*lease                      // by nonce
	removal      map[string]bool                        // the nonces of entries that are being removed
	owed         map[string]func(context.Context) error // gives up what could not be given up when it was time, by nonce
	down         error                                  // why the last call of the poller failed; nil if it did not
	order        uint64                                 // of the last that came to wait
	known        map[string]int64                       // until when other processes count, by the server's clock
	observations map[observation]time.Time              // since when a hold that is waited for stands there as it does

	turn chan struct{} // of one: to beat
	beat time.Time     // when this process last said that it lives

	polling  bool
	watching bool          // the goroutine runs
	watched  bool          // and the server watches
	idle     time.Time     // since when there is nothing to watch for
	kick     chan struct{} // of one, to the poller: look when you must
	now      bool          // and at once
}

func (w *waits) init() {
	w.attempts, w.waiting, w.leases = map[string]*attempt{}, map[string]*attempt{}, map[string]*lease{}
	w.removal, w.owed, w.known = map[string]bool{}, map[string]func(context.Context) error{}, map[string]int64{}
	w.turn, w.kick = make(chan struct{}, 1), make(chan struct{}, 1)
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
	if a.queued == 0 {
		w.order++
		a.queued = w.order
	}
	w.waiting[a.entry.Nonce] = a
	a.look = time.Now().Add(sleep)
	w.poll(a.d)
	w.watchOn(a.d)
}

// markRemoving marks the entry of an attempt or a hold that is being removed from its row. The
// owner may acquire again in the meantime, and must not get that entry.
func (w *waits) markRemoving(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removal[nonce] = true
}

// removing reports whether an entry is being removed.
func (w *waits) removing(nonce string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removal[nonce]
}

// markRemoved ends what markRemoving began.
func (w *waits) markRemoved(nonce string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.removal, nonce)
	delete(w.owed, nonce)
}

// settle removes an entry with fn. If the server is unavailable, the poller retries until the
// driver is closed.
func (d *Driver) settle(ctx context.Context, nonce string, fn func(context.Context) error) {
	leave, err := d.releasing.enter(ctx)
	if err == nil {
		err = fn(ctx)
		leave()
	}
	d.waits.owe(d, nonce, fn, err)
}

// owe has the poller retry fn, which returned err, if the error is transient.
func (w *waits) owe(d *Driver, nonce string, fn func(context.Context) error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !errors.Is(err, driver.ErrUnavailable) {
		delete(w.removal, nonce)
		return
	}
	w.owed[nonce], w.removal[nonce] = fn, true
	w.poll(d)
}

// outage returns the error of the poller's last request, or nil if the server answered it.
func (w *waits) outage() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// tell has the watcher tell a lease when another process waits for it.
func (w *waits) tell(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leases[l.nonce] = l
	w.watchOn(l.d)
}

func (w *waits) untell(l *lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leases[l.nonce] == l {
		delete(w.leases, l.nonce)
		w.note()
	}
}

// poll starts the poller, or has it look sooner than it thought. It is called with the mutex held.
func (w *waits) poll(d *Driver) {
	switch {
	case w.polling:
		w.poke()
	case !d.life.Over():
		w.polling = true
		d.life.Go(d.poll)
	}
}

// watchOn starts the watcher. It is called with the mutex held.
func (w *waits) watchOn(d *Driver) {
	if !w.watching && !d.life.Over() {
		w.watching = true
		d.life.Go(d.watch)
	}
}

// note notes since when the watcher has nothing to do. It is called with the mutex held.
func (w *waits) note() {
	if len(w.waiting)+len(w.leases) == 0 {
		w.idle = time.Now()
	}
}

// poke has the poller look when it must. It is called with the mutex held.
func (w *waits) poke() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// see notes whether the server watches, and has the poller look at what may have been missed until now.
func (w *waits) seen(watched bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watched, w.now = watched, true
	w.poke()
}

func (a *attempt) wake() {
	select {
	case a.hint <- struct{}{}:
	default: // it is about to look anyway
	}
}

// called acts on a call of this driver in the row of a name: the first of its attempts there looks. If there is none, the
// call is for a holder, or for nobody.
func (d *Driver) called(name string) {
	w := &d.waits
	w.mu.Lock()
	var first *attempt
	for _, a := range w.waiting {
		if a.req.Name == name && (first == nil || a.queued < first.queued) {
			first = a
		}
	}
	if first != nil {
		first.wake()
	}
	var told []*lease
	for _, l := range w.leases {
		if l.req.Name == name {
			told = append(told, l)
		}
	}
	w.mu.Unlock()
	if first != nil && len(told) == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), waiterLife, errNoAnswer)
	defer cancel()
	_ = d.change(ctx, name, func(s *state) (bool, error) { // if it fails, renewals and the poller tell
		for _, l := range told {
			if s.strangers(d.id) {
				l.wanted()
			}
		}
		return s.uncall(d.id) || s.buried, nil
	})
}

// live says, if that is not known, that this process lives.
func (w *waits) live(ctx context.Context, d *Driver) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock()
	recent := time.Since(w.beat) < refreshEvery*9/10
	w.mu.Unlock()
	if recent {
		return nil
	}
	began, life := time.Now(), waiterLife.Microseconds()
	_, err := d.exec(ctx, d.sql.beat, []byte(processes+d.id), life, life)
	if err == nil {
		w.mu.Lock()
		w.beat = began
		w.mu.Unlock()
	}
	return err
}

// end takes the process out of the store, when it has nothing to do there any more.
func (w *waits) end(d *Driver) {
	if w.beat.IsZero() {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), life.Withdrawal, errNoAnswer)
	defer cancel()
	_, _ = d.exec(ctx, forNames(d.sql.forget, 1), []byte(processes+d.id)) // if it fails, it counts as dead soon
}

// bury takes out of states who has died: waiters whose process says nothing, or who are not known here and pretend to be
// ours; and holders whose session has ended.
func (d *Driver) bury(ctx context.Context, states map[string]*state) error {
	if err := d.endSessions(ctx, states); err != nil {
		return err
	}
	w := &d.waits
	w.mu.Lock()
	var doubtful []string
	for _, s := range states {
		if d.session == nil {
			w.expireUnchanged(s)
		}
		s.bury(func(e entry) bool { return e.process() == d.id && w.attempts[e.Nonce] == nil })
		for _, e := range s.waiters {
			if id := e.process(); id != d.id && w.known[id] <= s.now && !slices.Contains(doubtful, processes+id) {
				doubtful = append(doubtful, processes+id)
			}
		}
	}
	w.mu.Unlock()
	if len(doubtful) == 0 {
		return nil
	}
	living := map[string]int64{}
	for chunk := range slices.Chunk(doubtful, sizes[len(sizes)-1]) {
		n := size(len(chunk))
		err := d.query(ctx, forNames(d.sql.living, n), names(chunk, n), func(rows *sql.Rows) error {
			var name string
			var ends int64
			err := rows.Scan(&name, &ends)
			living[name] = ends
			return err
		})
		if err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range doubtful {
		id := name[len(processes):]
		if delete(w.known, id); living[name] > 0 {
			w.known[id] = living[name]
		}
	}
	for _, s := range states {
		s.bury(func(e entry) bool { return e.process() != d.id && w.known[e.process()] == 0 })
	}
	return nil
}

// An observation is a hold as it stands in its row. Each renewal changes until.
type observation struct {
	name  string
	token uint64
	until int64
}

// observe records the holds in states, and since when they have been unchanged. It forgets all
// others.
func (w *waits) observe(states map[string]*state) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, now := w.observations, time.Now() // after the answer, so after the last renewal
	w.observations = map[observation]time.Time{}
	for name, s := range states {
		for _, h := range slices.Concat(s.holders, s.unchanged) {
			one := observation{name, h.Token, h.Until}
			if w.observations[one] = before[one]; w.observations[one].IsZero() {
				w.observations[one] = now
			}
		}
	}
}

// expireUnchanged takes out of s the holds that were not renewed for their whole TTL by our own
// clock. They are still in the row because the server's clock was set back. If the holder renews
// the hold after all, the row's version changes, and the write that takes the lock fails. It is
// called with the mutex held.
func (w *waits) expireUnchanged(s *state) {
	s.holders = slices.DeleteFunc(s.holders, func(h entry) bool {
		since, seen := w.observations[observation{s.name, h.Token, h.Until}]
		over := seen && h.lasts() > 0 && time.Since(since) > h.lasts()+refreshEvery
		if over {
			s.unchanged = append(s.unchanged, h)
		}
		return over
	})
}

// lasts is how long a hold counts if it is not renewed; 0 if its row does not say.
func (e *entry) lasts() time.Duration {
	if e.Kept {
		return time.Duration(e.Until-e.Since) * time.Microsecond
	}
	return time.Duration(e.TTL) * time.Microsecond
}

// bury takes out the waiters that died.
func (s *state) bury(dead func(entry) bool) {
	before := len(s.waiters)
	s.waiters = slices.DeleteFunc(s.waiters, dead)
	s.buried = s.buried || len(s.waiters) < before
}

// poll looks after the waiters until there are none: it keeps their process alive in the store, and hints them when their
// turn has come and no call said so. However many there are, it sends at most ten statements a second.
func (d *Driver) poll() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	last, refreshed, rest := time.Time{}, time.Now(), time.Time{} // who waits is alive
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
		var err error
		if last.Sub(refreshed) >= refreshEvery*9/10 {
			if err = d.refresh(); err == nil {
				refreshed = last
			}
		}
		rest = outage.Rest(last, cmp.Or(d.look(), err), refreshEvery)
	}
}

// next returns when to look next, and whether there is anything to do: if not, the poller is over.
func (w *waits) next(last, refreshed time.Time) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := refreshed.Add(refreshEvery)
	if w.now {
		next = last
	}
	for _, a := range w.waiting {
		if a.look.Before(next) {
			next = a.look
		}
		if due := last.Add(pollEvery * time.Duration(a.before+1)); !w.watched && due.Before(next) {
			next = due // it takes as many hand-overs until its turn comes
		}
	}
	if len(w.waiting)+len(w.owed) == 0 {
		w.polling = false
		return next, false
	}
	if least := last.Add(pollEvery); next.Before(least) {
		next = least
	}
	return next, true
}

// refresh sends the heartbeat of the process, and retries what is owed.
func (d *Driver) refresh() error {
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), waiterLife/2, errNoAnswer)
	defer cancel()
	d.waits.mu.Lock()
	owed := maps.Clone(d.waits.owed)
	d.waits.mu.Unlock()
	var err error
	for nonce, fn := range owed {
		if failed := fn(ctx); errors.Is(failed, driver.ErrUnavailable) {
			err = failed
		} else {
			d.waits.markRemoved(nonce)
		}
	}
	err = cmp.Or(d.waits.live(ctx, d), err)
	d.waits.answered(err)
	return err
}

// answered records whether the server answered the poller's last request.
func (w *waits) answered(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down = nil; errors.Is(err, driver.ErrUnavailable) {
		w.down = err
	}
}

// look reads the rows that are waited for, and hints the attempts whose turn has come.
func (d *Driver) look() error {
	ctx, cancel := context.WithTimeoutCause(d.life.Context(), waiterLife/2, errNoAnswer)
	defer cancel()
	w := &d.waits
	w.mu.Lock()
	w.now = false
	asked := maps.Clone(w.waiting)
	w.mu.Unlock()
	set := map[string]bool{}
	for _, a := range asked {
		set[a.req.Name] = true
	}
	found, err := d.read(ctx, slices.Collect(maps.Keys(set)))
	if w.answered(err); err != nil {
		return err
	}
	w.observe(found)
	w.mu.Lock()
	defer w.mu.Unlock()
	for nonce, a := range asked {
		s := found[a.req.Name]
		if s == nil {
			s = &state{}
		}
		place, granted, sleep := s.turn(nonce, false)
		a.before = max(place, 0)
		if a.look = time.Now().Add(sleep); granted || place < 0 {
			a.look = time.Now().Add(refreshEvery)
			a.wake()
		}
	}
	return nil
}
