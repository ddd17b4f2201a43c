package jobtest

// This file checks what the errors of acquisitions say: during an outage that the store is
// unavailable, and why; of a lock that is held, who holds it.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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

	// Anonymous are the kinds whose store does not know the token and the label of a holder.
	Anonymous []string

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

	Says    string           // the cause, as part of each error's text
	Has     func(error) bool // whether the cause is in the error's chain; nil if the client loses it
	Denied  bool             // a retry does not help: the errors do not match ErrUnavailable
	Answers bool             // the store says when it will grant: RetryTimeout does not apply
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

// Run runs each way to acquire a lock that is held, and then each way in each outage.
func (c RefusalTest) Run(t *testing.T) {
	for kind, open := range c.Open {
		if slices.Contains(c.Anonymous, kind) {
			continue
		}
		t.Run(kind+"/Held", func(t *testing.T) { c.held(t, open) })
	}
	for _, o := range c.Outages {
		t.Run(o.Name, func(t *testing.T) { c.outage(t, o) })
	}
}

// A form is one way to acquire a lock.
type form struct {
	name string
	ends error         // of package context: how the caller's context ends; nil if it lives on
	says string        // what the error says of the end of the wait, with the time that was waited
	min  time.Duration // the driver may take so long, although the caller wants to wait for less

	// With tries, the answer of the store may come before the end of the wait, and the error then
	// does not match ends. With behind, an error may be that of a goroutine that waited in the
	// queue of its process, for another one that had no answer yet.
	tries, behind bool

	call func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error
}

// errGivenUp is the cause with which a caller's context is canceled.
var errGivenUp = errors.New("the caller has given up")

func forms() []form {
	one := func(l *snib.Locker, ctx context.Context, name string) []error {
		_, err := l.Acquire(ctx, name)
		return []error{err}
	}
	all := func(l *snib.Locker, ctx context.Context, name string) []error {
		_, err := l.AcquireAll(ctx, name, name+" and another")
		return []error{err}
	}
	type caller = func(context.Context, *snib.Locker, time.Duration, string) []error
	deadline := func(acquire func(*snib.Locker, context.Context, string) []error) caller {
		return func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			return acquire(l, ctx, name)
		}
	}
	return []form{
		{name: "Try", min: driver.AnswerTimeout, call: func(ctx context.Context, l *snib.Locker, _ time.Duration, name string) []error {
			_, err := l.TryAcquire(ctx, name)
			return []error{err}
		}},
		{name: "TryAll", min: driver.AnswerTimeout, call: func(ctx context.Context, l *snib.Locker, _ time.Duration, name string) []error {
			_, err := l.TryAcquireAll(ctx, name, name+" and another")
			return []error{err}
		}},
		{name: "TryDeadline", tries: true, ends: context.DeadlineExceeded, call: deadline(func(l *snib.Locker, ctx context.Context, name string) []error {
			_, err := l.TryAcquire(ctx, name)
			return []error{err}
		})},
		{name: "MaxWait", says: "waited for %v", call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			return one(l.With(snib.MaxWait(wait)), ctx, name)
		}},
		{name: "MaxWaitAll", says: "waited for %v", call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			return all(l.With(snib.MaxWait(wait)), ctx, name)
		}},
		{name: "Deadline", ends: context.DeadlineExceeded, says: "context deadline exceeded", call: deadline(one)},
		{name: "DeadlineAll", ends: context.DeadlineExceeded, says: "context deadline exceeded", call: deadline(all)},
		{name: "Queued", behind: true, ends: context.DeadlineExceeded, says: "context deadline exceeded", call: deadline(func(l *snib.Locker, ctx context.Context, name string) []error {
			other := make(chan []error, 1)
			go func() { other <- one(l, ctx, name) }()
			return append(one(l, ctx, name), <-other...)
		})},
		{name: "QueuedMaxWait", behind: true, says: "waited for %v", call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			patient, cancel := context.WithCancel(ctx)
			other := make(chan []error, 1)
			go func() { other <- one(l, patient, name) }()
			errs := one(l.With(snib.MaxWait(wait)), ctx, name)
			cancel()
			<-other
			return errs
		}},
		{name: "Cancel", ends: context.Canceled, says: errGivenUp.Error(), call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer time.AfterFunc(wait, func() { cancel(errGivenUp) }).Stop()
			return one(l, ctx, name)
		}},
		{name: "RetryTimeout", says: "gave up after ", min: driver.AnswerTimeout, call: func(ctx context.Context, l *snib.Locker, wait time.Duration, name string) []error {
			return one(l.With(snib.RetryTimeout(wait)), ctx, name)
		}},
	}
}

const (
	// shortWait is how long the acquisitions of a test wait at first, and longestWait at most.
	shortWait   = 500 * time.Millisecond
	longestWait = 4 * time.Second

	// lateBy is how late an acquisition may return on a busy machine. It is much less than
	// AnswerTimeout: who waits for a store that hangs does not wait for its answer.
	lateBy = 3 * time.Second
)

// A refusedCall is one acquisition during an outage.
type refusedCall struct {
	form
	kind   string
	used   bool // the driver has acquired a lock before
	locker *snib.Locker
	errs   []error
	wait   time.Duration // of the last try
	took   time.Duration // by the last try
	late   time.Duration // by which the slowest try was late
}

// run acquires. Unless each error says the cause, it acquires again, after a pause and for longer:
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
		c.errs = c.call(ctx, c.locker, c.wait, fmt.Sprintf("%s/%s/%v", c.kind, c.name, c.used))
		c.took = time.Since(began)
		c.late = max(c.late, c.took-max(c.min, c.wait))
		last, pause := try == 4, c.wait-c.took
		if o.Denied {
			last, pause = time.Since(first) > livetest.Patience, shortWait
		}
		if last || !slices.ContainsFunc(c.errs, func(err error) bool { return c.knows(err) && !o.isCauseOf(err) }) {
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

// knows reports whether err must say the cause of the outage: it is not that of a goroutine that
// waited for another one.
func (c *refusedCall) knows(err error) bool {
	return !c.behind || err == nil || !strings.Contains(err.Error(), "another goroutine")
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
		for _, f := range forms() {
			for _, used := range []bool{false, true} {
				isBasic := slices.Contains([]string{"Try", "MaxWait", "Deadline"}, f.name)
				if used && o.Open != nil || !used && o.Open == nil && !isBasic || o.Answers && f.name == "RetryTimeout" {
					continue
				}
				d := open(t)
				l := locker(t, d)
				drivers = append(drivers, d)
				calls = append(calls, &refusedCall{form: f, kind: kind, used: used, locker: l})
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
		how := "Fresh"
		if call.used {
			how = "Used"
		}
		t.Run(call.kind+how+"/"+call.name, func(t *testing.T) { c.check(t, o, call) })
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
				errs[i] = c.locker.Do(t.Context(), c.kind+"/"+c.name, func(context.Context, *snib.Lock) error { return nil })
			})
		}
	}
	using.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// check checks what the errors of one acquisition match and say.
func (c RefusalTest) check(t *testing.T, o Outage, call *refusedCall) {
	ends, says := call.ends, call.says
	if o.Denied || call.tries && !errors.Is(call.errs[0], ends) && call.took < call.wait+lateBy {
		ends, says = nil, ""
	}
	if strings.Contains(says, "%v") {
		says = fmt.Sprintf(says, call.wait)
	}
	if call.late > lateBy {
		t.Errorf("it returned %v late, want at most %v", call.late, lateBy)
	}
	for _, err := range call.errs {
		t.Log(err)
		if err == nil {
			t.Error("there is no error")
			continue
		}
		knows := call.knows(err)
		for _, kind := range []struct {
			err  error
			want bool
		}{
			{snib.ErrHeld, false}, {snib.ErrUnavailable, !o.Denied}, {snib.ErrLost, false},
			{context.DeadlineExceeded, ends == context.DeadlineExceeded}, //nolint:errorlint // as forms has it
			{context.Canceled, ends == context.Canceled},                 //nolint:errorlint // likewise
			{errGivenUp, ends == context.Canceled},                       //nolint:errorlint // likewise
		} {
			if errors.Is(err, kind.err) != kind.want {
				t.Errorf("%v\nmatches %v: %v, want %v", err, kind.err, !kind.want, kind.want)
			}
		}
		if knows && o.Has != nil && !o.Has(err) {
			t.Errorf("%v\nhas lost the cause", err)
		}
		if knows {
			c.checkText(t, err.Error(), o.Says)
		}
		c.checkText(t, err.Error(), says)
	}
}

// checkText checks that the text of an error is one line that says certain things and has no
// secrets.
func (c RefusalTest) checkText(t *testing.T, text string, says ...string) {
	t.Helper()
	for _, part := range says {
		if !strings.Contains(text, part) {
			t.Errorf("%s\ndoes not say %q", text, part)
		}
	}
	if strings.ContainsAny(text, "\r\n") {
		t.Errorf("%q has several lines", text)
	}
	if c.Secret != "" && strings.Contains(text, c.Secret) {
		t.Errorf("%q contains the secret", text)
	}
}

// held runs the forms that end while somebody else holds the lock, and checks that their errors say
// who that is.
func (c RefusalTest) held(t *testing.T, open func(*testing.T) driver.Driver) {
	const name, label = "held", "order 17"
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	holder := locker(t, open(t)).With(snib.Label(label))
	lock, err := holder.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	waits, giveUp := context.WithCancel(t.Context())
	waiter := locker(t, open(t))
	waiting := make(chan error, 1)
	go func() {
		_, err := waiter.Acquire(waits, name)
		waiting <- err
	}()

	type result struct {
		name string
		err  error
	}
	var results []result
	var mu sync.Mutex
	var running sync.WaitGroup
	for who, l := range map[string]*snib.Locker{"Local": holder, "Remote": locker(t, open(t))} {
		for _, f := range forms() {
			if f.ends != nil || f.name == "RetryTimeout" {
				continue // its error is the context's, or it waits
			}
			running.Go(func() {
				errs := f.call(t.Context(), l, shortWait, name)
				for wait := 2 * shortWait; errors.Is(errs[0], snib.ErrUnavailable) && wait <= longestWait; wait *= 2 {
					errs = f.call(t.Context(), l, wait, name) // a busy machine did not answer in time
				}
				mu.Lock()
				defer mu.Unlock()
				results = append(results, result{who + "/" + f.name, errs[0]})
			})
		}
	}
	running.Wait()
	for _, r := range results {
		t.Run(r.name, func(t *testing.T) {
			var held *snib.HeldError
			if !errors.As(r.err, &held) || !errors.Is(r.err, snib.ErrHeld) || errors.Is(r.err, snib.ErrUnavailable) {
				t.Fatalf("%v\nis not only a *HeldError", r.err)
			}
			t.Log(r.err)
			var info snib.HeldInfo
			livetest.Await(t, "holder and waiter", func() error {
				// The other acquisitions of this test may be withdrawn a little later.
				if info, err = held.Info(t.Context()); err == nil && (len(info.Holders) != 1 || info.Waiters != 1) {
					err = fmt.Errorf("its Info is %+v, want one holder and one waiter", info)
				}
				return err
			})
			t.Log(info)
			h := info.Holders[0]
			if h.Label != label || h.Host != host || h.PID != os.Getpid() || h.Token != lock.Token() {
				t.Errorf("the holder is %+v, want %q on %s with the token %d", h, label, host, lock.Token())
			}
			if h.Held <= 0 || h.Held > time.Since(began)+time.Second {
				t.Errorf("held for %v, want at most %v", h.Held, time.Since(began))
			}
			if h.Left <= 0 {
				t.Errorf("the lease ends in %v", h.Left)
			}
			for _, text := range []string{r.err.Error(), info.String()} {
				c.checkText(t, text)
				if strings.Contains(text, lock.ID()) {
					t.Errorf("%q contains the id", text)
				}
			}
			c.checkText(t, info.String(), label)
		})
	}
	giveUp()
	<-waiting //nolint:errcheck // giveUp ended it
	if err := lock.Release(); err != nil {
		t.Errorf("Release = %v", err)
	}
}
