package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// feedbackInterval is how long a person waits for a sign of life: the delay before the first
// progress message, the interval between two messages, and the timeout of optional requests.
const feedbackInterval = time.Second

// answerWithin returns the context of a request to the store.
func answerWithin(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: no answer within %v", snib.ErrUnavailable, d))
}

// An acquirer opens the store and acquires one lock, with the options of the command line.
type acquirer struct {
	*app
	waitFlags
	holder driver.Holder // its label, and its pid if that is not ours
	noWait bool          // for the lock
	skip   bool          // see explainRefusal
	names  []string      // the lock that is wanted, or several of which one is
	held   holds         // what was acquired before, if the command needs several locks

	firstGrant time.Time // when the first of held was acquired

	mu      sync.Mutex
	id      string // of the last attempt for the first of names
	failure error  // why the store does not serve us; nil if it does, as far as is known
}

// A recordingDriver is a driver that records, in the acquirer, the id of an attempt, and why
// the store does not serve it. It shows others the pid of the acquirer's holder, if that has one.
type recordingDriver struct {
	driver.Driver
	*acquirer
}

// Acquire implements [driver.Driver].
func (d recordingDriver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if req.Name == d.names[0] {
		d.mu.Lock()
		d.id = req.ID
		d.mu.Unlock()
	}
	req.Holder.PID = cmp.Or(d.holder.PID, req.Holder.PID)
	tell := req.NoteWait
	req.OnWait = func(err error) { d.record(err); tell(err) }
	lease, err := d.Driver.Acquire(ctx, req)
	if err == nil || errors.Is(err, snib.ErrUnavailable) { // the core, or the next name, may wait on
		d.record(err)
	}
	return lease, err
}

// record records why the store does not serve us, or with nil that it does.
func (acq *acquirer) record(failure error) {
	acq.mu.Lock()
	defer acq.mu.Unlock()
	acq.failure = failure
}

// state returns the id of our last attempt, and why the store does not serve us, or nil.
func (acq *acquirer) state() (id string, failure error) {
	acq.mu.Lock()
	defer acq.mu.Unlock()
	return acq.id, acq.failure
}

// connect opens the store. If the command may wait for the lock, connect retries while the
// store is unreachable, for as long as an acquisition would, but no longer than --wait or one
// second, whichever is longer. Meanwhile it tells the user why it waits.
//
// connect subtracts the time that it took from --wait, but leaves at least one second for the
// lock, or all of --wait if that is less. A signal from sigs ends it; the others end the process.
func (acq *acquirer) connect(sigs <-chan os.Signal) (*backend.Store, error) {
	if acq.noWait {
		return acq.open(backend.Take)
	}
	type result struct {
		store *backend.Store
		err   error
	}
	if _, err := acq.loadConfig(); err != nil { // before messages look for its passwords
		return nil, err
	}
	began := time.Now()
	done := make(chan result, 1)
	go func() {
		for outage := (driverkit.Outage{}); ; {
			sentAt := time.Now()
			s, err := acq.open(backend.Take)
			pause, again := outage.AgainWithin(acq.retry.value, sentAt, err)
			if !again {
				done <- result{s, err}
				return
			}
			acq.record(err)
			time.Sleep(pause)
		}
	}()
	var timedOut <-chan time.Time
	if acq.wait.set {
		timedOut = time.After(max(acq.wait.value, feedbackInterval))
	}
	line := &waitLine{acq: acq}
	defer line.clear()
	tick := time.NewTicker(feedbackInterval)
	defer tick.Stop()
	for {
		select {
		case got := <-done:
			if acq.wait.set {
				acq.wait.value = max(acq.wait.value-time.Since(began), min(acq.wait.value, feedbackInterval))
			}
			acq.record(nil)
			return got.store, got.err
		case <-timedOut:
			_, err := acq.state()
			return nil, fmt.Errorf("%w: %w", snib.ErrUnavailable, cmp.Or(err, errors.New(noAnswer)))
		case sig := <-sigs:
			return nil, silentExit(exitSignal + int(sig.(syscall.Signal)))
		case <-tick.C:
			line.update()
		}
	}
}

// options returns the options of a Locker that acquires as the command line says.
func (acq *acquirer) options(ttl time.Duration) []snib.Option {
	opts := []snib.Option{snib.TTL(ttl), snib.Label(acq.holder.Label), snib.RetryTimeout(acq.retry.value)}
	switch {
	case acq.noWait:
		opts = append(opts, snib.NoWait())
	case acq.wait.set:
		opts = append(opts, snib.MaxWait(acq.wait.value))
	}
	return opts
}

// acquire acquires one of the names, and meanwhile shows who holds the first. It gives up if one of
// acq.held is lost, or if a signal asks the process to end; it then returns the exit code for that.
func (acq *acquirer) acquire(locker *snib.Locker, s *backend.Store, names []string,
	sigs <-chan os.Signal) (*snib.Lock, error) {
	acq.names = names
	type result struct {
		lock *snib.Lock
		err  error
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan result, 1)
	go func() {
		if len(names) == 1 {
			lock, err := locker.Acquire(ctx, names[0])
			done <- result{lock, err}
			return
		}
		lock, err := locker.AcquireAny(ctx, names...)
		done <- result{lock, err}
	}()
	line := &waitLine{acq: acq, store: s}
	tick := time.NewTicker(feedbackInterval)
	defer tick.Stop()
	lost := acq.held.lost()
	var termSignal syscall.Signal
	for {
		select {
		case <-lost: // of those that were acquired before; see acquireNames
			lost = nil
			cancel()
		case got := <-done:
			line.clear()
			if termSignal == 0 {
				return got.lock, got.err
			}
			if got.err == nil { // granted while we were giving up
				_ = releaseSoon(got.lock)
			}
			acq.held.release()
			acq.held = nil
			closeSoon(locker) // the cleanup of the attempt may still run
			acq.flush()
			exitStatus{bySIGINT: termSignal == syscall.SIGINT && onTerminal()}.raiseSIGINT()
			return nil, silentExit(exitSignal + int(termSignal))
		case sig := <-sigs:
			if isTermination(sig) && termSignal == 0 {
				termSignal = sig.(syscall.Signal)
				cancel()
			}
		case <-tick.C:
			line.update()
		}
	}
}

// acquireNames acquires any one of the names; or all or none, one after the other. These are
// sorted, as they are for [snib.Locker.AcquireAll], so that no two callers wait for each other. If
// it fails, acq.names has the name, or the names, that it did not get.
func (acq *acquirer) acquireNames(locker *snib.Locker, s *backend.Store, names []string, anyOne bool,
	sigs <-chan os.Signal) (holds, error) {
	began, size := time.Now(), 1
	if anyOne {
		size = len(names)
	}
	for choice := range slices.Chunk(names, size) {
		if len(acq.held) > 0 && acq.wait.set && !acq.noWait {
			rest := max(acq.wait.value-time.Since(began), min(acq.wait.value, feedbackInterval))
			locker = locker.With(snib.MaxWait(rest))
		}
		lock, err := acq.acquire(locker, s, choice, sigs)
		if err == nil {
			if len(acq.held) == 0 {
				acq.firstGrant = time.Now()
			}
			acq.held = append(acq.held, lock)
		}
		if cause := acq.held.cause(); cause != nil {
			err = failf(exitUnavailable, "one of %s was lost during the wait for the next: %s", acq.held, message(cause))
		}
		if err != nil {
			acq.held.release()
			return nil, err
		}
	}
	return acq.held, nil
}

// releaseTimeout bounds the release of a lock that nobody needs any more. A store that hangs
// must not keep the process for longer.
const releaseTimeout = 5 * time.Second

// errUnreleased means that the store did not confirm the release of a lock in time.
const errUnreleased driver.Sentinel = noAnswer

// releaseSoon releases a lock. It returns errUnreleased if that takes longer than
// releaseTimeout, or longer than the lease lasts, as nothing is left to release then. If the
// lease has ended already, it waits no longer than feedbackInterval.
func releaseSoon(lock *snib.Lock) error {
	var err error
	if !within(min(releaseTimeout, cmp.Or(lock.Validity(), feedbackInterval)), func() { err = lock.Release() }) {
		return errUnreleased
	}
	return err
}

// isTermination reports whether a signal asks a program to end.
func isTermination(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP || s == syscall.SIGQUIT
}

// labelWithUser returns the label of a hold: text, and the user who runs this program. It is shown
// to everybody who may see the lock.
func labelWithUser(text string) string { return text + " by " + userName() }

// userName returns the name of the user who runs this program, or the number of a user without a
// name, as in many containers.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// unavailableText returns the message for an error that means that the store is unavailable.
func unavailableText(err error) string {
	if left, ok := backend.Grace(err); ok {
		return withheldText(left)
	}
	return message(err)
}

// withheldText explains why the store does not grant a lock although no holder is seen.
func withheldText(left time.Duration) string {
	return fmt.Sprintf("the store restarted or failed over, and grants nothing for %s", short(left))
}

// withheldError returns the error for a lock that the store does not grant although no holder is
// seen.
func withheldError(name string, left time.Duration) error {
	return failf(exitUnavailable, "%s may be taken: %s (failover-grace)", printable(name), withheldText(left))
}

// explainRefusal turns the error of an acquisition into the one for the user. If somebody holds the
// lock, it has busyCode, or is nil with --skip. Otherwise it says why the store did not grant it.
func (acq *acquirer) explainRefusal(err error, s *backend.Store, busyCode int) error {
	switch {
	case errors.Is(err, snib.ErrUnavailable):
		if left, ok := backend.Grace(err); ok {
			return withheldError(acq.names[0], left)
		}
		return &exitError{exitUnavailable, err}
	case errors.Is(err, snib.ErrKind):
		return failf(exitConfig, "%s; choose another name, or use the kind that it has", message(err))
	// The name and the flags were checked, so the store can't be used where it is.
	case errors.Is(err, snib.ErrInvalid):
		return failf(exitConfig, "%s", message(err))
	case !errors.Is(err, snib.ErrHeld):
		return err
	}
	waited, patience := acq.wait.set && !acq.noWait, feedbackInterval
	if waited {
		patience = driver.AnswerTimeout
	}
	ctx, cancel := answerWithin(context.Background(), patience)
	defer cancel()
	var st driver.Status
	var failure error
	if waited || !acq.skip && len(acq.names) == 1 {
		st, failure = s.Status(ctx, acq.names[0])
	}
	text := printable(acq.names[0]) + " is taken"
	switch {
	case waited && errors.Is(failure, snib.ErrUnavailable): // perhaps for longer, unnoticed by the core
		return failure
	case acq.skip:
		acq.verbosef("%s: skipped", text)
		return nil
	case len(acq.names) > 1:
		text = "all are taken: " + printableNames(acq.names)
	case failure == nil && len(st.Holders) > 0: // we may have no right to look
		text += ": " + heldBy(st.Holders[0])
	}
	return acq.taken(busyCode, text)
}
