package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/cmd/snib/internal/child"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/retry"
)

// patience is how long we wait before we say so, and how often we then say more.
const patience = time.Second

// A wanting is how somebody wants a lock.
type wanting struct {
	*app
	req    driver.Request // what we ask the store for, as far as it decides whether we get it, and our owner
	wait   *duration      // at most so long, if it is set
	noWait bool

	mu      sync.Mutex
	trouble error // of the last attempt to reach the store
	seen    time.Time
}

// Attempts is a driver that tells the wanting why it could not serve it.
type attempts struct {
	driver.Driver
	*wanting
}

// Acquire implements [driver.Driver].
func (a attempts) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	lease, err := a.Driver.Acquire(ctx, req)
	if unavailable(err) {
		a.failed(err)
	}
	return lease, err
}

// failed remembers why the store did not serve us.
func (w *wanting) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble, w.seen = err, time.Now()
}

// outage is why the store does not serve us just now, or nil if that is not known, or was long ago.
func (w *wanting) outage() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.seen) > 2*patience {
		return nil
	}
	return w.trouble
}

// connect opens the store. If we may wait for the lock, a store that is out of reach is tried again
// for as long as an acquisition would be, but no longer than --wait, or a second if that is less.
// It says why. The rest of --wait is for the lock: at least a second, or all of --wait if that is
// less.
func (w *wanting) connect() (*backend.Store, error) {
	if w.noWait {
		return w.open(true)
	}
	type result struct {
		store *backend.Store
		err   error
	}
	began := time.Now()
	done := make(chan result, 1)
	go func() {
		for outage := (retry.Outage{}); ; {
			asked := time.Now()
			s, err := w.open(true)
			pause, again := outage.Again(asked, err)
			if !again {
				done <- result{s, err}
				return
			}
			w.failed(err)
			time.Sleep(pause)
		}
	}()
	var over <-chan time.Time
	if w.wait.set {
		over = time.After(max(w.wait.value, patience))
	}
	line := &waitLine{want: w}
	defer line.clear()
	tick := time.NewTicker(patience)
	defer tick.Stop()
	for {
		select {
		case got := <-done:
			if w.wait.set {
				w.wait.value = max(w.wait.value-time.Since(began), min(w.wait.value, patience))
			}
			return got.store, got.err
		case <-over:
			err := w.outage()
			if err == nil {
				err = errors.New(noAnswer)
			}
			return nil, fmt.Errorf("%w: %w", snib.ErrUnavailable, err)
		case <-tick.C:
			line.draw()
		}
	}
}

// options are those of a Locker that acquires as we want.
func (w *wanting) options() []snib.Option {
	opts := []snib.Option{snib.TTL(w.req.TTL), snib.Owner(w.req.Owner), snib.Label(w.req.Holder.Label)}
	switch {
	case w.noWait:
		opts = append(opts, snib.NoWait())
	case w.wait.set:
		opts = append(opts, snib.MaxWait(w.wait.value))
	}
	return opts
}

// acquire takes the lock, tells who is in the way, and gives up on a signal, with the exit code that says so.
func (w *wanting) acquire(locker *snib.Locker, s *backend.Store, sigs <-chan os.Signal) (*snib.Lock, error) {
	type result struct {
		lock *snib.Lock
		err  error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan result, 1)
	go func() {
		lock, err := locker.Acquire(ctx, w.req.Name)
		done <- result{lock, err}
	}()
	line := &waitLine{want: w, store: s}
	tick := time.NewTicker(patience)
	defer tick.Stop()
	var stop syscall.Signal
	for {
		select {
		case got := <-done:
			line.clear()
			if stop == 0 {
				return got.lock, got.err
			}
			if got.err == nil { // granted while we were giving up
				_ = releaseSoon(got.lock)
			}
			closeSoon(locker) // the withdrawal may not be over
			ending{die: stop == syscall.SIGINT && onTerminal()}.raise()
			return nil, silent(exitSignal + int(stop))
		case sig := <-sigs:
			if ends(sig) && stop == 0 {
				stop = sig.(syscall.Signal)
				cancel()
			}
		case <-tick.C:
			line.draw()
		}
	}
}

// releaseTimeout bounds what is left to do for a lock once nobody needs it any more: a store that hangs must not keep us for longer.
const releaseTimeout = 5 * time.Second

// errUnreleased means that the release of a lock was given up.
const errUnreleased driver.Sentinel = "its release was not answered"

// releaseSoon releases a lock. It takes no longer than the lease lasts, as there is nothing left to release then, and no longer than
// releaseTimeout. Where the lease is over already, it takes little longer than an answer needs.
func releaseSoon(lock *snib.Lock) error {
	over := time.After(min(releaseTimeout, cmp.Or(lock.Validity(), patience)))
	done := make(chan error, 1)
	go func() { done <- lock.Release() }()
	select {
	case err := <-done:
		return err
	case <-over:
		return errUnreleased
	}
}

// ends reports whether a signal asks a program to end.
func ends(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

// onTerminal reports whether a person watches standard error.
func onTerminal() bool { return child.IsTerminal(syscall.Stderr) }

// A waitLine tells a person for whom we wait: one line, drawn anew each second. Without a terminal, or with one that can't
// redraw, it is printed once: with --verbose, or if we wait for something else than for a holder.
type waitLine struct {
	want  *wanting
	store *backend.Store // nil while it is not open
	drawn bool
	quiet bool          // nothing more is to be said
	next  time.Time     // when to look again without a terminal
	pause time.Duration // and for how long not to look then
}

func (l *waitLine) draw() {
	redraws := onTerminal() && os.Getenv("TERM") != "dumb"
	if l.quiet || l.want.quiet || !redraws && (l.want.noWait || time.Now().Before(l.next)) {
		return
	}
	// Looks cost the store something, and many may wait without a terminal.
	l.pause = max(2*l.pause, patience)
	l.next = time.Now().Add(l.pause)
	reason, usual := l.reason()
	if usual && !onTerminal() && !l.want.verbose {
		return
	}
	text := oneLine("snib: waiting for " + printable(l.want.req.Name) + reason)
	if !redraws {
		l.quiet = true
		fmt.Fprintln(l.want.err, text)
		return
	}
	if width := child.Width(syscall.Stderr); width > 1 {
		text = cut(text, width-1) // a line that wraps can't be drawn over
	}
	fmt.Fprintf(l.want.err, "\r\x1b[K%s", text)
	l.drawn = true
}

// clear takes the line away.
func (l *waitLine) clear() {
	if l.drawn {
		fmt.Fprint(l.want.err, "\r\x1b[K")
	}
}

// reason is for what we wait, and whether that is as usual: for a holder, or for an answer.
func (l *waitLine) reason() (text string, usual bool) {
	if err := l.want.outage(); err != nil {
		return ": " + why(err), false
	}
	if l.store == nil {
		return ": " + noAnswer, true // as far as we know; there may be an answer soon
	}
	if !onTerminal() && !l.want.verbose && !l.store.Withholds() {
		return "", true // an outage is told by the attempts
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := status(ctx, l.store, l.want.req.Name)
	if err != nil {
		return ": " + message(err), false // perhaps it passes; else the wait itself will end with it
	}
	if ahead := l.ahead(st); ahead > 0 {
		text += fmt.Sprintf(", %d ahead", ahead)
	}
	if len(st.Holders) == 0 {
		switch left, err := l.store.Grace(ctx, l.want.req); {
		case err != nil:
			return text + ": " + why(err), false
		case left > 0:
			return text + ": " + withheld(left), false
		}
		return text, true
	}
	h := st.Holders[0]
	text += ": " + heldBy(h)
	if n := len(st.Holders) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + ", " + strings.TrimPrefix(prospect(h), "its "), true
}

// why is what an error says of a store that is unavailable.
func why(err error) string {
	if left, ok := backend.Grace(err); ok {
		return withheld(left)
	}
	return message(err)
}

// withheld says why a lock is not granted that nobody is seen to hold.
func withheld(left time.Duration) string {
	return fmt.Sprintf("the store restarted or failed over, and grants nothing for %s", short(left))
}

// ahead counts the waiters that are served before us.
func (l *waitLine) ahead(st driver.Status) int {
	for i, other := range st.Waiters {
		if other.Owner == l.want.req.Owner {
			return i
		}
	}
	return 0
}

// A taken is what is said of a lock that somebody holds, or may hold.
type taken struct{ text string }

func (t taken) Error() string { return t.text }

// refused returns what is to be told of the error of an acquisition: a taken if somebody holds the lock, and else why the
// store did not grant it, with the exit code for that.
func (w *wanting) refused(err error, s *backend.Store) error {
	name := printable(w.req.Name)
	switch {
	case unavailable(err):
		return w.withheld(err)
	case errors.Is(err, snib.ErrLost): // the answer came too late
		return fail(exitUnavailable, "%s; is the store too slow for --ttl %v?", message(err), w.req.TTL)
	case errors.Is(err, snib.ErrKind):
		return fail(exitConfig, "%s; choose another name, or ask for the kind that it is", message(err))
	case errors.Is(err, snib.ErrInvalid): // name and flags were checked: it is the store's place that can't be used
		return fail(exitConfig, "%s", message(err))
	case !errors.Is(err, snib.ErrHeld):
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := status(ctx, s, w.req.Name)
	switch {
	case err != nil && w.wait.set:
		return w.withheld(err)
	case err == nil && len(st.Holders) > 0:
		return taken{fmt.Sprintf("%s is taken: %s", name, heldBy(st.Holders[0]))}
	case w.wait.set: // there was time for the reason to change
		switch left, err := s.Grace(ctx, w.req); {
		case err != nil:
			return w.withheld(err)
		case left > 0:
			return fail(exitUnavailable, "%s may be taken: %s (failover-grace)", name, withheld(left))
		}
	}
	return taken{name + " is taken"}
}

// withheld is the failure to get a lock that nobody is known to hold.
func (w *wanting) withheld(err error) error {
	if left, ok := backend.Grace(err); ok {
		return fail(exitUnavailable, "%s may be taken: %s (failover-grace)", printable(w.req.Name), withheld(left))
	}
	return &failure{exitUnavailable, err}
}
