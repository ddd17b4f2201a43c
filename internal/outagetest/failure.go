// Package outagetest checks what holders, waiters and newcomers are told while a store fails, as
// docs/failures.md says.
package outagetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Store is a store that fails.
type Store struct {
	Open   func(t *testing.T) driver.Driver // opens a driver with connections of its own, which t closes
	Secret string                           // no error contains it; "" if there is none
}

// A Failure is what happens to a store under a holder and a waiter, as a cell of docs/failures.md
// says.
type Failure struct {
	Name   string
	Begin  func(t *testing.T) (end func()) // nil, for Errors: the store fails all the time
	Renews bool                            // leases are renewed meanwhile
	Lost   bool                            // the hold is lost by the end of the failure
	Denied bool                            // a retry does not help: the errors do not match ErrUnavailable, and waits end
	Grants bool                            // the next one gets a lock that is free
	Silent bool                            // the store does not answer, and Ping says so
	Next   error                           // what else the error of the next one matches
	TTL    time.Duration                   // of the hold; 0: a minute

	// Says is the cause, as part of the text of each error of an acquisition. If it is "", nobody but
	// the next one is tried. Has reports whether the cause is in the error's chain; it is nil if the
	// client loses it.
	Says string
	Has  func(error) bool
}

// A Stoppable server can hang and die. A *livetest.Process is one.
type Stoppable interface {
	Hang()
	Resume()
	Kill()
	Restart()
}

// Hung returns the failure of servers that are stopped.
func Hung(says string, servers ...Stoppable) Failure {
	return Failure{Name: "Hung", Silent: true, Says: says, Begin: func(*testing.T) func() {
		for _, s := range servers {
			s.Hang()
		}
		return func() {
			for _, s := range servers {
				s.Resume()
			}
		}
	}}
}

// Restarted returns the failure of servers that are killed, and later restarted.
func Restarted(servers ...Stoppable) Failure {
	return Failure{Name: "Restart", Silent: true, Says: "connection refused", Has: Is(syscall.ECONNREFUSED), Begin: func(*testing.T) func() {
		for _, s := range servers {
			s.Kill()
		}
		return func() {
			for _, s := range servers {
				s.Restart()
			}
		}
	}}
}

// Is returns a function that reports whether an error matches target.
func Is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// Failures runs each failure with drivers of its own. A waiter comes before it, and one meanwhile:
// both get the lock in the end, unless the store denies it to them. Others are told why they don't
// get theirs.
func (s Store) Failures(t *testing.T, all ...Failure) {
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) { s.fail(t, f) })
	}
}

// Errors checks for each failure what the errors of acquisitions say, and no more.
func (s Store) Errors(t *testing.T, all ...Failure) {
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			calls := s.refusedCalls(t, f.Begin != nil)
			if f.Begin != nil {
				defer f.Begin(t)()
			}
			s.checkErrors(t, f, calls)
			if f.Silent {
				f.ping(t, calls[0].locker)
			}
		})
	}
}

func (s Store) fail(t *testing.T, f Failure) {
	req := driver.Request{Name: "held", ID: f.Name, TTL: cmp.Or(f.TTL, time.Minute)}
	d := s.Open(t)
	before, meanwhile, next := locker(t, s.Open(t)), locker(t, s.Open(t)), locker(t, s.Open(t))
	held, told := livetest.AcquireTold(t, d, req)
	leases := []driver.Lease{held}
	first := acquireLater(t, before)
	livetest.Await(t, "waiter", func() error {
		st, err := d.Status(t.Context(), req.Name)
		if err == nil && len(st.Waiters) != 1 {
			err = fmt.Errorf("there are %d", len(st.Waiters))
		}
		return err
	})
	var calls []*refusedCall
	if f.Says != "" {
		calls = s.refusedCalls(t, true)
	}
	end := f.Begin(t)
	livetest.Await(t, "answer to the next one", func() error {
		lock, err := next.TryAcquire(t.Context(), "free")
		if err == nil {
			err = lock.Release()
		}
		return f.check("TryAcquire", err, f.Grants, f.Next)
	})
	if f.Silent {
		f.ping(t, next)
	}
	if !f.Lost {
		livetest.Await(t, "answer to the holder", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), driver.AnswerTimeout)
			defer cancel()
			err := d.Renew(ctx, leases)[0].Err
			if f.Silent && ctx.Err() != nil && !errors.Is(err, driver.ErrLost) {
				return nil // the wait for an answer has ended, which is all that it may say
			}
			return f.check("Renew", err, f.Renews, nil)
		})
	}
	s.checkErrors(t, f, calls)
	late := acquireLater(t, meanwhile)
	if f.Denied && !f.Grants {
		if err := f.check("Acquire", <-late, false, nil); err != nil {
			t.Error(err)
		}
		late = acquireLater(t, meanwhile)
	}
	end()
	if f.Lost {
		livetest.Await(t, "loss", func() error {
			select {
			case err := <-told:
				return checkLost(err)
			default:
				return checkLost(d.Renew(t.Context(), leases)[0].Err)
			}
		})
	} else {
		livetest.Await(t, "hold", func() error { return d.Renew(t.Context(), leases)[0].Err })
		livetest.Want(t, held.Release(t.Context()), nil, "Release")
	}
	for who, got := range map[string]<-chan error{"before": first, "meanwhile": late} {
		err := <-got
		if f.Denied && err != nil && f.check("Acquire", err, false, nil) == nil {
			continue // denied before the end
		}
		livetest.Want(t, err, nil, "Acquire of the waiter that came %s", who)
	}
	livetest.Await(t, "Ping without an error", func() error { return next.Ping(t.Context()) })
}

// check reports whether err is what the failure says, or nil, if it succeeds.
func (f Failure) check(what string, err error, succeeds bool, is error) error {
	switch {
	case succeeds && err == nil:
		return nil
	case err == nil, errors.Is(err, driver.ErrLost), errors.Is(err, driver.ErrHeld), succeeds,
		errors.Is(err, driver.ErrUnavailable) == f.Denied, is != nil && !errors.Is(err, is):
		return fmt.Errorf("%s = %w; want success: %v, denied: %v, %w", what, err, succeeds, f.Denied, is)
	}
	return nil
}

// ping checks that Ping says in time that a store does not answer.
func (f Failure) ping(t *testing.T, l *snib.Locker) {
	t.Helper()
	began := time.Now()
	if err := l.Ping(t.Context()); !errors.Is(err, snib.ErrUnavailable) || errors.Is(err, snib.ErrHeld) {
		t.Errorf("Ping = %v, want ErrUnavailable", err)
	}
	// A busy machine may be late.
	if took := time.Since(began); took > 6*driver.AnswerTimeout {
		t.Errorf("Ping took %v", took)
	}
}

func checkLost(err error) error {
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return fmt.Errorf("the holder got %w, want ErrLost", err)
}

// acquireLater acquires the lock, and releases it again, in a goroutine.
func acquireLater(t *testing.T, l *snib.Locker) <-chan error {
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*livetest.Patience) // several others wait before it
	t.Cleanup(cancel)
	go func() { got <- l.Do(ctx, "held", func(context.Context, *snib.Lock) error { return nil }) }()
	return got
}

func locker(t testing.TB, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	livetest.Must(t, err, "make a Locker")
	t.Cleanup(func() { _ = l.Close() })
	return l
}
