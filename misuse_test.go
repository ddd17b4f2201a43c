package snib_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// A nil context is an error that says so.
func TestNilContext(t *testing.T) {
	l := open(t, memlock.New())
	var none context.Context
	_, err := l.Acquire(none, "a")
	_, tryErr := l.TryAcquire(none, "a")
	_, allErr := l.AcquireAll(none, "a")
	_, anyErr := l.AcquireAny(none, "a")
	doErr := l.Do(none, "a", nil)
	_, adoptErr := l.Adopt(none, "a", "id")
	_, statusErr := l.Status(none, "a")
	var listErr error
	for _, listErr = range l.List(none, "a") {
	}
	lock := acquire(t, l, "a")
	_, err2 := l.TryAcquire(t.Context(), "a")
	_, infoErr := mustBeHeldError(t, "TryAcquire", err2).Info(none)
	release(t, lock)
	for what, err := range map[string]error{
		"Acquire": err, "TryAcquire": tryErr, "AcquireAll": allErr, "AcquireAny": anyErr,
		"Do": doErr, "Adopt": adoptErr, "Ping": l.Ping(none),
		"Status": statusErr, "List": listErr, "Break": l.Break(none, "a", "id"), "Info": infoErr,
	} {
		if !errors.Is(err, snib.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "context: it is nil") {
			t.Errorf("%s with a nil context = %v", what, err)
		}
	}
}

// mustPanic checks that a call panics with a text.
func mustPanic(t *testing.T, what, text string, call func()) {
	t.Helper()
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, text) {
			t.Errorf("%s panics with %q, want %q", what, got, text)
		}
	}()
	call()
}

// A Release that was deferred before the error of Acquire was checked is an error, and no panic.
// All other methods panic with a clear text.
func TestNilLock(t *testing.T) {
	for _, lock := range []*snib.Lock{nil, {}} {
		if err := lock.Release(); !errors.Is(err, snib.ErrInvalid) || !strings.Contains(err.Error(), "check the error of Acquire") {
			t.Errorf("Release = %v", err)
		}
		for what, use := range map[string]func(){
			"Name": func() { lock.Name() }, "Token": func() { lock.Token() }, "ID": func() { lock.ID() }, "Validity": func() { lock.Validity() },
			"Context": func() { lock.Context() }, "Lost": func() { lock.Lost() }, "Wanted": func() { lock.Wanted() },
		} {
			mustPanic(t, what, "invalid Lock", use)
		}
	}
}

// The same is true of the Locks of an AcquireAll that failed.
func TestNilLocks(t *testing.T) {
	for _, locks := range []*snib.Locks{nil, {}} {
		if err := locks.Release(); !errors.Is(err, snib.ErrInvalid) || !strings.Contains(err.Error(), "check the error of AcquireAll") {
			t.Errorf("Release = %v", err)
		}
		for what, use := range map[string]func(){
			"Context": func() { locks.Context() }, "Lost": func() { locks.Lost() }, "Lock": func() { locks.Lock("a") },
		} {
			mustPanic(t, what, "invalid Locks", use)
		}
	}
}

// MinHold would close a name that is acquired with others and given back, although nothing ran.
func TestMinHoldOfSeveral(t *testing.T) {
	l := open(t, memlock.New(), snib.MinHold(time.Minute))
	_, allErr := l.AcquireAll(t.Context(), "a", "b")
	_, anyErr := l.AcquireAny(t.Context(), "a", "b")
	for what, err := range map[string]error{"AcquireAll": allErr, "AcquireAny": anyErr} {
		wantErr(t, what, err, snib.ErrInvalid)
	}
}

// Options that contradict each other are refused. A derived Locker may replace NoWait by MaxWait
// and the other way round.
func TestContradictoryOptions(t *testing.T) {
	for says, opts := range map[string][]snib.Option{
		"MaxWait with NoWait":   {snib.NoWait(), snib.MaxWait(time.Second)},
		"MaxHold with Detached": {snib.Detached(), snib.MaxHold(time.Second)},
		"MinHold: 1m0s":         {snib.MinHold(time.Minute), snib.MaxHold(time.Second)},
	} {
		if _, err := snib.New(memlock.New(), opts...); !errors.Is(err, snib.ErrInvalid) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("New = %v, want %q", err, says)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		l := open(t, memlock.New(), snib.NoWait())
		acquire(t, l, "a")
		waits := l.With(snib.MaxWait(time.Second))
		for _, tt := range []struct {
			name   string
			locker *snib.Locker
			want   time.Duration
		}{{"NoWait", l, 0}, {"MaxWait", waits, time.Second}, {"Inherited", waits.With(snib.Label("x")), time.Second}, {"NoWaitAgain", waits.With(snib.NoWait()), 0}} {
			began := time.Now()
			_, err := tt.locker.Acquire(t.Context(), "a")
			wantErr(t, tt.name, err, snib.ErrHeld)
			if took := time.Since(began); took != tt.want {
				t.Errorf("%s waited %v, want %v", tt.name, took, tt.want)
			}
		}
	})
}

// Close of a derived Locker leaves the one that it was derived from as it is.
func TestCloseOfDerivedLocker(t *testing.T) {
	l := open(t, memlock.New())
	lock := acquire(t, l, "a")
	if err := l.With(snib.Shared()).Close(); err != nil {
		t.Fatal(err)
	}
	release(t, lock)
	release(t, acquire(t, l, "a"))
}

// If the store dies during the body, Do returns by the caller's deadline, and says that the release
// is not confirmed. Without a deadline it waits for 5 seconds.
func TestDoOnDyingStore(t *testing.T) {
	errBody := errors.New("body")
	tests := []struct {
		name            string
		deadline, body  time.Duration
		err             error
		within, atLeast time.Duration
	}{
		{name: "NoDeadline", body: time.Second, within: 6 * time.Second, atLeast: 6 * time.Second},
		{name: "Deadline", deadline: 3 * time.Second, body: time.Second, within: 3 * time.Second, atLeast: 3 * time.Second},
		{name: "DeadlineOver", deadline: 3 * time.Second, body: 4 * time.Second, within: 4*time.Second + 50*time.Millisecond, atLeast: 4 * time.Second},
		{name: "BodyFails", deadline: 3 * time.Second, body: time.Second, err: errBody, within: 3 * time.Second, atLeast: 3 * time.Second},
	}
	for _, tt := range tests {
		bubble(t, tt.name, func(t *testing.T) {
			store := new(memlock.Store)
			d := fault.Wrap(store.Open(), fault.Plan{})
			l, ctx := open(t, d), t.Context()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			began := time.Now()
			err := l.Do(ctx, "a", func(context.Context, *snib.Lock) error {
				d.Sever(fault.Hang)
				time.Sleep(tt.body)
				return tt.err
			})
			wantErr(t, "Do", err, cmp.Or(tt.err, error(snib.ErrUnreleased)))
			if tt.err != nil &&
				(errors.Is(err, snib.ErrUnreleased) || !strings.Contains(err.Error(), snib.ErrUnreleased.Error())) {
				t.Errorf("Do whose function failed = %q, want the unconfirmed release in its text only", err)
			}
			if took := time.Since(began); took > tt.within || took < tt.atLeast {
				t.Errorf("Do took %v, want %v to %v", took, tt.atLeast, tt.within)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has several lines: %q", err)
			}
			time.Sleep(time.Minute) // the release in the background ends
		})
	}
}

// The error of many locks is one line of bounded length.
func TestErrorsOfManyLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fault.Wrap(memlock.New(), fault.Plan{})
		l := open(t, d)
		var names []string
		for i := range 100 {
			names = append(names, fmt.Sprintf("lock-%03d", i))
		}
		locks, err := l.AcquireAll(t.Context(), names...)
		if err != nil {
			t.Fatal(err)
		}
		d.Sever(fault.Fail)
		err = locks.Release()
		wantErr(t, "Release", err, fault.ErrSevered)
		if text := err.Error(); strings.Contains(text, "\n") || len(text) > 1000 || !strings.Contains(text, "and 97 more errors") {
			t.Errorf("error = %q", text)
		}
	})
	e := &snib.Error{Op: "acquire", Name: "a", Backend: "b", Err: errors.New("failed to connect to:\n\thost 1\n\thost 2\n" + strings.Repeat("x", 10_000))}
	if text := e.Error(); strings.Contains(text, "\n") || len(text) > 3000 {
		t.Errorf("Error = %q", text)
	}
}

// The context of a hold that is over is an ended context: the error of an acquisition with it says
// so, and does not look as if the other lock had been released.
func TestContextOfAnEndedHold(t *testing.T) {
	l := open(t, memlock.New())
	lock := acquire(t, l, "a")
	ctx := lock.Context()
	release(t, lock)
	_, err := l.Acquire(ctx, "other")
	wantErr(t, "Acquire", err, context.Canceled)
	wantErr(t, "Acquire", err, snib.ErrReleased)
	if !strings.Contains(err.Error(), "context canceled: ") {
		t.Errorf("error = %q", err)
	}
}

// A Locker that no New has returned is an error with a clear text, and no panic by a nil pointer.
// The methods that return no error panic with that text.
func TestNilLocker(t *testing.T) {
	for _, l := range []*snib.Locker{nil, {}} {
		ctx := t.Context()
		_, acquireErr := l.Acquire(ctx, "a")
		_, tryErr := l.TryAcquire(ctx, "a")
		_, allErr := l.AcquireAll(ctx, "a")
		_, anyErr := l.AcquireAny(ctx, "a")
		_, adoptErr := l.Adopt(ctx, "a", "id")
		_, statusErr := l.Status(ctx, "a")
		var listErr error
		for _, listErr = range l.List(ctx, "") {
		}
		for what, err := range map[string]error{
			"Acquire": acquireErr, "TryAcquire": tryErr, "AcquireAll": allErr, "AcquireAny": anyErr,
			"Adopt": adoptErr, "Status": statusErr, "List": listErr, "Do": l.Do(ctx, "a", nil),
			"Ping": l.Ping(ctx), "Break": l.Break(ctx, "a", "id"), "Close": l.Close(),
		} {
			if !errors.Is(err, snib.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "check the error of New") {
				t.Errorf("%s = %v", what, err)
			}
		}
		for what, use := range map[string]func(){
			"With": func() { l.With() }, "Info": func() { l.Info() },
		} {
			mustPanic(t, what, "invalid Locker", use)
		}
	}
}

// Do with a nil function takes no lock.
func TestDoNothing(t *testing.T) {
	d := newSpy(new(memlock.Store))
	d.acquire = func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
		t.Error("Do with a nil function acquired the lock")
		return nil, errors.New("not granted")
	}
	wantErr(t, "Do", open(t, d).Do(t.Context(), "a", nil), snib.ErrInvalid)
}

// A name may come from a URL, and an error goes into logs and answers.
func TestErrorOfALongName(t *testing.T) {
	l := open(t, memlock.New())
	name := strings.Repeat("é", 1<<20)
	_, err := l.Acquire(t.Context(), name)
	wantErr(t, "Acquire", err, snib.ErrInvalid)
	if text := err.Error(); len(text) > 400 || !strings.Contains(text, strings.Repeat("é", 40)+"…") || !utf8.ValidString(text) {
		t.Errorf("the error has %d bytes, want the first 80 of the name and an ellipsis: %.400s", len(text), text)
	}
	var details *snib.Error
	if !errors.As(err, &details) || details.Name != name {
		t.Error("the error does not have the whole name for programs")
	}
}

// A goroutine that waits for itself, or for another one of its process, learns that this process
// holds the lock, and where the holder acquired it if the Locker has a Trace.
func TestWaitForOwnProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		for _, tt := range []struct {
			name string
			opts []snib.Option
			want string
		}{
			{"Plain", nil, "this process holds it"},
			{"Traced", []snib.Option{snib.Tracing(&snib.Trace{})}, "this process holds it, acquired by github.com/sniblock/snib_test.acquire ("},
		} {
			l := open(t, d, tt.opts...)
			lock := acquire(t, l, tt.name)
			_, err := l.With(snib.MaxWait(time.Second)).Acquire(t.Context(), tt.name)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, ctxErr := l.Acquire(ctx, tt.name)
			wantErr(t, "Acquire with MaxWait", err, snib.ErrHeld)
			wantErr(t, "Acquire with a deadline", ctxErr, context.DeadlineExceeded)
			for _, err := range []error{err, ctxErr} {
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
				}
			}
			release(t, lock)
		}
	})
}
