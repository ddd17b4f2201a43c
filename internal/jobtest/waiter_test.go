package jobtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/memlock"
)

// A waiter is in the queue, and returns the result of its Acquire.
func TestWaiter(t *testing.T) {
	s := new(memlock.Store)
	holder, other := s.Open(), s.Open()
	request := func(id string) driver.Request {
		return driver.Request{Name: "a", ID: id, TTL: time.Hour}
	}
	held := jobtest.Acquiring(t, holder, request("holder")).Get(t)
	cancelled := jobtest.Waiting(t, other, request("given up"))
	next := jobtest.Waiting(t, other, request("next"))
	cancelled.Cancel()
	if err := cancelled.End(t); !errors.Is(err, context.Canceled) {
		t.Errorf("End = %v, want that it was cancelled", err)
	}
	if !fails(t, func(t testing.TB) { cancelled.Get(t) }) {
		t.Error("Get of an Acquire that failed does not fail")
	}
	next.Running(t, "while another holds")
	began := time.Now()
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := next.Get(t); l != next.Lease || next.At.Before(began) {
		t.Errorf("Get = %v, at %v; want %v, after %v", l, next.At, next.Lease, began)
	}
	<-next.Done()
	if !fails(t, func(t testing.TB) { next.Running(t, "any more") }) {
		t.Error("Running after the grant does not fail")
	}
	if !fails(t, func(t testing.TB) {
		jobtest.Waiting(t, s.Open(), driver.Request{Name: "free", ID: "b", TTL: time.Hour})
	}) {
		t.Error("Waiting for a lock that is free does not fail")
	}
}
