package jobtest

// This file checks what the errors of acquisitions say during an outage: that the store is
// unavailable, and why.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A RefusalTest says how to open a store, and how to make it refuse all acquisitions.
type RefusalTest struct {
	// Open opens a driver of each kind that the backend has. Each driver has connections of its own.
	// It is closed with t at the latest.
	Open map[string]func(t *testing.T) driver.Driver

	Secret  string   // no error contains it; "" if there is none
	Outages []Outage // in this order; the store need not come back after the last one
}

// An Outage is a state in which a store grants nothing.
type Outage struct {
	Name  string
	Begin func(t *testing.T) (end func())

	// Open opens a driver that the store refuses, or is nil if the store refuses all drivers. It is
	// called before Begin.
	Open func(t *testing.T) driver.Driver

	Says   string           // the cause, as part of each error's text
	Has    func(error) bool // whether the cause is in the error's chain; nil if the client loses it
	Denied bool             // a retry does not help: the errors do not match ErrUnavailable
}

// Hung returns the outage of servers that are stopped.
func Hung(says string, servers ...Stoppable) Outage {
	return Outage{Name: "Hung", Says: says, Begin: func(*testing.T) func() {
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

// Dead returns the outage of servers that were killed. They stay dead.
func Dead(servers ...Stoppable) Outage {
	return Outage{Name: "Dead", Says: "connection refused", Has: Is(syscall.ECONNREFUSED), Begin: func(*testing.T) func() {
		for _, s := range servers {
			s.Kill()
		}
		return func() {}
	}}
}

// Is returns a function that reports whether an error matches target.
func Is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

// Run runs each way to acquire a lock in each outage.
func (c RefusalTest) Run(t *testing.T) {
	for _, o := range c.Outages {
		t.Run(o.Name, func(t *testing.T) { c.outage(t, o) })
	}
}

// A form is one way to acquire a lock. The tests of package snib try the others: what the error
// says of the outage is up to the driver.
type form struct {
	name string
	ends error         // how the caller's context ends; nil if it lives on
	says string        // what the error says of the end of the wait, with the time that was waited
	min  time.Duration // the driver may take so long, although the caller wants to wait for less
	call func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) (*snib.Lock, error)
}

var forms = []form{
	{name: "Try", min: driver.AnswerTimeout, call: func(ctx context.Context, l *snib.Locker, _ time.Duration, name string) (*snib.Lock, error) {
		return l.TryAcquire(ctx, name)
	}},
	{name: "MaxWait", says: "waited for %v", call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) (*snib.Lock, error) {
		return l.With(snib.MaxWait(wait)).Acquire(ctx, name)
	}},
	{name: "Deadline", ends: context.DeadlineExceeded, says: "context deadline exceeded", call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) (*snib.Lock, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return l.Acquire(ctx, name)
	}},
}

const (
	// shortWait is how long the acquisitions of a test wait at first.
	shortWait = 500 * time.Millisecond

	// lateBy is how late an acquisition may return on a busy machine. It is much less than
	// AnswerTimeout: who waits for a store that hangs does not wait for its answer.
	lateBy = 3 * time.Second
)

// A refusedCall is one acquisition during an outage.
type refusedCall struct {
	form
	name   string // of the lock, and of the test
	used   bool   // the driver has acquired a lock before
	locker *snib.Locker
	err    error
	wait   time.Duration // of the last try
	late   time.Duration // by which the slowest try was late
}

// run acquires. Unless the error says the cause, it acquires again, after a pause and for longer:
// a busy machine may not have found out in time, a connection that was cut may be noticed only when
// it is used, and a client that met a dying server knows of it what it saw last, until it connects
// again.
func (c *refusedCall) run(ctx context.Context, o Outage) {
	c.wait = shortWait
	if o.Denied {
		c.wait = livetest.Patience // the answer ends it
	}
	for try, first := 1, time.Now(); ; try++ {
		began := time.Now()
		_, c.err = c.call(ctx, c.locker, c.wait, c.name)
		took := time.Since(began)
		c.late = max(c.late, took-max(c.min, c.wait))
		last, pause := try == 4, c.wait-took
		if o.Denied {
			last, pause = time.Since(first) > livetest.Patience, shortWait
		}
		if last || o.isCauseOf(c.err) {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if !o.Denied {
			c.wait *= 2
		}
	}
}

// isCauseOf reports whether err says the cause of the outage.
func (o Outage) isCauseOf(err error) bool {
	return err != nil && strings.Contains(err.Error(), o.Says) && (o.Has == nil || o.Has(err))
}

// outage runs all forms at the same time, each with a driver of its own, and checks their errors.
func (c RefusalTest) outage(t *testing.T, o Outage) {
	kinds := c.Open
	if o.Open != nil {
		kinds = map[string]func(*testing.T) driver.Driver{"Stranger": o.Open}
	}
	var calls []*refusedCall
	var drivers []driver.Driver
	for kind, open := range kinds {
		for _, f := range forms {
			for how, used := range map[string]bool{"Fresh": false, "Used": true} {
				if used && o.Open != nil {
					continue
				}
				d := open(t)
				drivers = append(drivers, d)
				calls = append(calls, &refusedCall{form: f, name: kind + how + "/" + f.name, used: used, locker: locker(t, d)})
			}
		}
	}
	useAll(t, calls)
	end := o.Begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(func() { call.run(ctx, o) })
	}
	running.Wait()
	end()
	for _, d := range drivers { // one after another, they would take long without a server
		running.Go(func() { _ = d.Close() })
	}
	running.Wait()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) { c.check(t, o, call) })
	}
}

// useAll acquires and releases a lock with each driver that is to be used before the outage.
func useAll(t *testing.T, calls []*refusedCall) {
	t.Helper()
	errs := make([]error, len(calls))
	var using sync.WaitGroup
	for i, c := range calls {
		if c.used {
			using.Go(func() {
				errs[i] = c.locker.Do(t.Context(), c.name, func(context.Context, *snib.Lock) error { return nil })
			})
		}
	}
	using.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// check checks what the error of an acquisition matches and says: one line, without the secret.
func (c RefusalTest) check(t *testing.T, o Outage, call *refusedCall) {
	ends, says := call.ends, call.says
	if o.Denied {
		ends, says = nil, ""
	}
	if strings.Contains(says, "%v") {
		says = fmt.Sprintf(says, call.wait)
	}
	if call.late > lateBy {
		t.Errorf("it returned %v late, want at most %v", call.late, lateBy)
	}
	err := call.err
	if err == nil {
		t.Fatal("there is no error")
	}
	t.Log(err)
	for _, kind := range []struct {
		err  error
		want bool
	}{
		{snib.ErrHeld, false}, {snib.ErrUnavailable, !o.Denied}, {snib.ErrLost, false},
		{context.DeadlineExceeded, ends != nil}, {context.Canceled, false},
	} {
		if errors.Is(err, kind.err) != kind.want {
			t.Errorf("%v\nmatches %v: %v, want %v", err, kind.err, !kind.want, kind.want)
		}
	}
	if !o.isCauseOf(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v\nhas lost the cause, or does not say %q and %q", err, o.Says, says)
	}
	if strings.ContainsAny(err.Error(), "\r\n") || c.Secret != "" && strings.Contains(err.Error(), c.Secret) {
		t.Errorf("%q has several lines, or contains the secret", err)
	}
}
