package livetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
)

// A Waiter is a call of Acquire in a goroutine of its own.
type Waiter struct {
	cancel context.CancelFunc
	done   chan struct{}

	// Set when Done is closed.
	Lease driver.Lease
	Err   error
	At    time.Time // when Acquire returned
}

// Acquiring starts an Acquire, which ends with the test at the latest.
func Acquiring(t testing.TB, d driver.Driver, req driver.Request) *Waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &Waiter{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.Lease, w.Err = d.Acquire(ctx, req)
		w.At = time.Now()
	}()
	return w
}

// Waiting is like Acquiring, but returns only when the waiter is in the store's queue.
func Waiting(t testing.TB, d driver.Driver, req driver.Request) *Waiter {
	t.Helper()
	w := Acquiring(t, d, req)
	Await(t, "waiter in the queue", func() error {
		st, err := d.Status(t.Context(), req.Name)
		if slices.ContainsFunc(st.Waiters, func(other driver.Waiting) bool { return other.ID == req.ID }) {
			return nil
		}
		w.Running(t, "before it stood in the queue")
		return fmt.Errorf("status %+v, %w", st, err)
	})
	return w
}

// Cancel cancels the context of the Acquire.
func (w *Waiter) Cancel() { w.cancel() }

// Done returns a channel that is closed when the Acquire has returned.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Running checks that the Acquire has not returned.
func (w *Waiter) Running(t testing.TB, when string) {
	t.Helper()
	select {
	case <-w.done:
		t.Fatalf("Acquire returned %v, %v %s; want it to wait", w.Lease, w.Err, when)
	default:
	}
}

// End waits for the end of the Acquire, which must come soon, and returns its error.
func (w *Waiter) End(t testing.TB) error {
	t.Helper()
	select {
	case <-w.done:
	case <-time.After(Patience):
		t.Fatalf("Acquire did not return within %v", Patience)
	}
	return w.Err
}

// Get waits for the end of the Acquire, which must succeed, and returns its lease.
func (w *Waiter) Get(t testing.TB) driver.Lease {
	t.Helper()
	Must(t, w.End(t), "Acquire")
	return w.Lease
}

// WithWanted returns req with an OnWanted that closes the channel. It panics if it is called again.
func WithWanted(req driver.Request) (driver.Request, <-chan struct{}) {
	wanted := make(chan struct{})
	req.OnWanted = func() { close(wanted) }
	return req, wanted
}
