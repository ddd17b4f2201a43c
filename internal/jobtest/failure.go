package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Failure is what happens to a store under a holder and a waiter, as a cell of docs/failures.md
// says.
type Failure struct {
	Name   string
	Begin  func(t *testing.T) (end func())
	Renews bool          // leases are renewed meanwhile
	Lost   bool          // the hold is lost by the end of the failure
	Denied bool          // a retry does not help: the errors do not match ErrUnavailable, and waits end
	Grants bool          // the next one gets a lock that is free
	Next   error         // what else the error of the next one matches
	TTL    time.Duration // of the hold; 0: a minute
}

// Failures runs each failure with drivers of its own. A waiter comes before it, and one meanwhile:
// both get the lock in the end, unless the store denies it to them.
func Failures(t *testing.T, open func(*testing.T) driver.Driver, all ...Failure) {
	for _, f := range all {
		t.Run(f.Name, func(t *testing.T) {
			f.run(t, open, driver.Request{Name: "held", ID: f.Name, TTL: cmp.Or(f.TTL, time.Minute)})
		})
	}
}

func (f Failure) run(t *testing.T, open func(*testing.T) driver.Driver, req driver.Request) {
	d := open(t)
	before, meanwhile, next := locker(t, open(t)), locker(t, open(t)), locker(t, open(t))
	held, told := AcquireTold(t, d, req)
	leases := []driver.Lease{held}
	first := acquireLater(t, before)
	livetest.Await(t, "waiter", func() error {
		st, err := d.Status(t.Context(), req.Name)
		if err == nil && len(st.Waiters) != 1 {
			err = fmt.Errorf("there are %d", len(st.Waiters))
		}
		return err
	})
	end := f.Begin(t)
	livetest.Await(t, "answer to the next one", func() error {
		lock, err := next.TryAcquire(t.Context(), "free")
		if err == nil {
			err = lock.Release()
		}
		return f.check("TryAcquire", err, f.Grants, f.Next)
	})
	if !f.Lost {
		livetest.Await(t, "answer to the holder", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), driver.AnswerTimeout)
			defer cancel()
			return f.check("Renew", d.Renew(ctx, leases)[0].Err, f.Renews, nil)
		})
	}
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
		if err := held.Release(t.Context()); err != nil {
			t.Errorf("Release = %v", err)
		}
	}
	for who, got := range map[string]<-chan error{"before": first, "meanwhile": late} {
		err := <-got
		if f.Denied && err != nil && f.check("Acquire", err, false, nil) == nil {
			continue // denied before the end
		}
		if err != nil {
			t.Errorf("Acquire of the waiter that came %s = %v", who, err)
		}
	}
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

func checkLost(err error) error {
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return fmt.Errorf("the holder got %w, want ErrLost", err)
}

// acquireLater acquires the lock, and releases it again, in a goroutine.
func acquireLater(t *testing.T, l *snib.Locker) <-chan error {
	got := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	t.Cleanup(cancel)
	go func() { got <- l.Do(ctx, "held", func(context.Context, *snib.Lock) error { return nil }) }()
	return got
}

func locker(t testing.TB, d driver.Driver) *snib.Locker {
	t.Helper()
	l, err := snib.New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
