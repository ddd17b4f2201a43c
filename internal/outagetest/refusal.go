package outagetest

// This file checks what the errors of acquisitions say during a failure: that the store is
// unavailable, and why.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

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

	// lateBy is how late an acquisition may return. It is much less than AnswerTimeout: who waits for
	// a store that hangs does not wait for its answer.
	lateBy = 3 * time.Second
)

// A refusedCall is one acquisition during a failure.
type refusedCall struct {
	form
	name   string // of the lock, and of the test
	locker *snib.Locker
	err    error
	wait   time.Duration // of the last try
	late   time.Duration // by which the quickest try was late
}

// refusedCalls returns an acquisition of each form by a driver that is new and, if the store works
// now, by one that has acquired a lock before.
func (s Store) refusedCalls(t *testing.T, works bool) []*refusedCall {
	t.Helper()
	var calls []*refusedCall
	for _, f := range forms {
		calls = append(calls, &refusedCall{form: f, name: "New/" + f.name, locker: locker(t, s.Open(t))})
		if !works {
			continue
		}
		used := &refusedCall{form: f, name: "Used/" + f.name, locker: locker(t, s.Open(t))}
		err := used.locker.Do(t.Context(), used.name, func(context.Context, *snib.Lock) error { return nil })
		livetest.Must(t, err, "acquire before the failure")
		calls = append(calls, used)
	}
	return calls
}

// run acquires. Unless the error says the cause, it acquires again, after a pause and for longer:
// a busy machine may not have found out in time, a connection that was cut may be noticed only when
// it is used, and a client that met a dying server knows of it what it saw last, until it connects
// again.
func (c *refusedCall) run(ctx context.Context, f Failure) {
	c.wait, c.late = shortWait, math.MaxInt64
	if f.Denied {
		c.wait = livetest.Patience // the answer ends it
	}
	for first := time.Now(); ; {
		began := time.Now()
		_, c.err = c.call(ctx, c.locker, c.wait, c.name)
		took := time.Since(began)
		c.late = min(c.late, took-max(c.min, c.wait))
		pause := c.wait - took
		if f.Denied {
			pause = shortWait
		}
		if f.isCauseOf(c.err) || time.Since(first) > livetest.Patience {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if !f.Denied {
			c.wait *= 2
		}
	}
}

// isCauseOf reports whether err says the cause of the failure. Of several nodes that deny access,
// one may have cut the connection, which is noticed when it is used: then a retry may help.
func (f Failure) isCauseOf(err error) bool {
	if f.Denied && errors.Is(err, driver.ErrUnavailable) {
		return false
	}
	return err != nil && strings.Contains(err.Error(), f.Says) && (f.Has == nil || f.Has(err))
}

// checkErrors makes all calls at the same time, during a failure, and checks their errors.
func (s Store) checkErrors(t *testing.T, f Failure, calls []*refusedCall) {
	slack := livetest.Slack(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*livetest.Patience)
	defer cancel()
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(func() { call.run(ctx, f) })
	}
	running.Wait()
	for _, call := range calls {
		t.Run(call.name, func(t *testing.T) { s.checkError(t, f, call, lateBy+slack()) })
	}
}

// checkError checks what the error of an acquisition matches, and says in one line, without the
// secret.
func (s Store) checkError(t *testing.T, f Failure, call *refusedCall, lateBy time.Duration) {
	ends, says := call.ends, call.says
	if f.Denied {
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
		{snib.ErrHeld, false}, {snib.ErrUnavailable, !f.Denied}, {snib.ErrLost, false},
		{context.DeadlineExceeded, ends != nil}, {context.Canceled, false},
	} {
		if errors.Is(err, kind.err) != kind.want {
			t.Errorf("%v\nmatches %v: %v, want %v", err, kind.err, !kind.want, kind.want)
		}
	}
	if !f.isCauseOf(err) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v\nhas lost the cause, or does not say %q and %q", err, f.Says, says)
	}
	if strings.ContainsAny(err.Error(), "\r\n") || s.Secret != "" && strings.Contains(err.Error(), s.Secret) {
		t.Errorf("%q has several lines, or contains the secret", err)
	}
}
