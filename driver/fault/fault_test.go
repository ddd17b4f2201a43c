package fault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

const errGone driver.Sentinel = "the caller went away"

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: time.Minute}
}

func mustAcquire(t *testing.T, d driver.Driver, name, id string) driver.Lease {
	t.Helper()
	l, err := d.Acquire(t.Context(), request(name, id))
	if err != nil {
		t.Fatalf("Acquire = %v", err)
	}
	return l
}

// holders returns the ids that hold a lock in the store.
func holders(t *testing.T, s *memlock.Store, name string) []string {
	t.Helper()
	st, err := s.Open().Status(t.Context(), name)
	if err != nil {
		t.Fatalf("Status = %v", err)
	}
	var ids []string
	for _, h := range st.Holders {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestRules(t *testing.T) {
	const errDown driver.Sentinel = "down"
	tests := []struct {
		name  string
		rule  fault.Rule
		limit time.Duration // of the context; zero means none
		err   error
		took  time.Duration
		held  bool // in the store
	}{
		{name: "Pass", held: true},
		{name: "Before", rule: fault.Rule{Before: time.Second}, took: time.Second, held: true},
		{name: "After", rule: fault.Rule{After: time.Second}, took: time.Second, held: true},
		{name: "Fail", rule: fault.Rule{Effect: fault.Fail}, err: fault.ErrInjected},
		{name: "FailAs", rule: fault.Rule{Effect: fault.Fail, Err: errDown}, err: errDown},
		{
			name: "FailLate", rule: fault.Rule{Effect: fault.Fail, Before: time.Second},
			err: fault.ErrInjected, took: time.Second,
		},
		{name: "Drop", rule: fault.Rule{Effect: fault.Drop}, err: fault.ErrInjected, held: true},
		{
			name: "DropLate", rule: fault.Rule{Effect: fault.Drop, After: time.Second},
			err: fault.ErrInjected, took: time.Second, held: true,
		},
		{name: "Hang", rule: fault.Rule{Effect: fault.Hang}, limit: time.Second, err: errGone, took: time.Second},
		{name: "CancelledBefore", rule: fault.Rule{Before: time.Hour}, limit: time.Second, err: errGone, took: time.Second},
		{
			name: "CancelledAfter", rule: fault.Rule{After: time.Hour}, limit: time.Second,
			err: errGone, took: time.Second, held: true,
		},
		{name: "OtherOp", rule: fault.Rule{Op: fault.Renew, Effect: fault.Fail}, held: true},
		{name: "OtherCall", rule: fault.Rule{Op: fault.Acquire, Call: 2, Effect: fault.Fail}, held: true},
		{name: "ThisCall", rule: fault.Rule{Op: fault.Acquire, Call: 1, Effect: fault.Fail}, err: fault.ErrInjected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(memlock.Store)
				d := fault.Wrap(s.Open(), fault.Plan{Rules: []fault.Rule{tt.rule}})
				ctx := t.Context()
				if tt.limit > 0 {
					limited, cancel := context.WithTimeoutCause(ctx, tt.limit, errGone)
					defer cancel()
					ctx = limited
				}
				start := time.Now()
				l, err := d.Acquire(ctx, request("lock", "a"))
				if !errors.Is(err, tt.err) || (l == nil) == (err == nil) {
					t.Errorf("Acquire = %v, %v; want %v", l, err, tt.err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("Acquire took %v, want %v", took, tt.took)
				}
				if held := len(holders(t, s, "lock")) > 0; held != tt.held {
					t.Errorf("held in the store: %v, want %v", held, tt.held)
				}
			})
		})
	}
}

func TestRenewAndRelease(t *testing.T) {
	s := new(memlock.Store)
	d := fault.Wrap(s.Open(), fault.Plan{Rules: []fault.Rule{
		{Op: fault.Renew, Call: 2, Effect: fault.Drop},
		{Op: fault.Release, Call: 1, Effect: fault.Drop},
	}})
	due := []driver.Lease{mustAcquire(t, d, "one", "a"), mustAcquire(t, d, "two", "b")}
	for i, want := range []error{nil, fault.ErrInjected, nil} {
		got := d.Renew(t.Context(), due)
		if len(got) != 2 || !errors.Is(got[0].Err, want) || !errors.Is(got[1].Err, want) {
			t.Errorf("Renew, call %d, = %v; want two times %v", i+1, got, want)
		}
	}
	if err := due[0].Release(t.Context()); !errors.Is(err, fault.ErrInjected) {
		t.Errorf("Release = %v, want %v", err, fault.ErrInjected)
	}
	if got := holders(t, s, "one"); len(got) > 0 {
		t.Errorf("after a Release whose answer was dropped, %q hold", got)
	}
	if err := due[0].Release(t.Context()); err != nil {
		t.Errorf("Release, again, = %v, want nil", err)
	}
	if got := d.Calls(fault.Renew); got != 3 {
		t.Errorf("Calls(Renew) = %d, want 3", got)
	}
}

// TestHangEndsWithClose checks that Close ends a call that hangs.
func TestHangEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := fault.Wrap(memlock.New(), fault.Plan{Rules: []fault.Rule{{Op: fault.Renew, Effect: fault.Hang}}})
		l := mustAcquire(t, d, "lock", "a")
		time.AfterFunc(time.Second, func() { _ = d.Close() })
		if got := d.Renew(t.Context(), []driver.Lease{l})[0].Err; !errors.Is(got, driver.ErrClosed) {
			t.Errorf("Renew that hangs until Close = %v, want ErrClosed", got)
		}
	})
}

func TestSever(t *testing.T) {
	tests := []struct {
		name  string
		how   fault.Effect
		limit time.Duration // of the context
		want  error
		took  time.Duration
	}{
		{"Fail", fault.Fail, time.Second, fault.ErrSevered, 0},
		{"Hang", fault.Hang, time.Second, errGone, time.Second},
		{"HangUntilHeal", fault.Hang, 2 * time.Hour, fault.ErrSevered, time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := fault.Wrap(memlock.New(), fault.Plan{})
				l := mustAcquire(t, d, "lock", "a")
				d.Sever(tt.how)
				time.AfterFunc(time.Hour, d.Heal)
				ctx, cancel := context.WithTimeoutCause(t.Context(), tt.limit, errGone)
				defer cancel()
				start := time.Now()
				if got := d.Renew(ctx, []driver.Lease{l})[0]; !errors.Is(got.Err, tt.want) {
					t.Errorf("Renew = %v, want %v", got.Err, tt.want)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("Renew took %v, want %v", took, tt.took)
				}
				time.Sleep(2 * time.Hour)
				if _, err := d.Acquire(t.Context(), request("lock", "b")); err != nil {
					t.Errorf("Acquire after Heal = %v", err)
				}
			})
		})
	}
}

// TestCancelledBeforeGrant checks that the inner driver sees an earlier cancellation in time.
func TestCancelledBeforeGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(memlock.Store)
		for range 100 {
			holder := mustAcquire(t, s.Open(), "lock", "a")
			ctx, cancel := context.WithCancelCause(t.Context())
			failed := make(chan error)
			d := fault.Wrap(s.Open(), fault.Plan{})
			go func() {
				_, err := d.Acquire(ctx, request("lock", "b"))
				failed <- err
			}()
			synctest.Wait()
			cancel(errGone)
			if err := holder.Release(t.Context()); err != nil {
				t.Fatalf("Release = %v", err)
			}
			if err := <-failed; !errors.Is(err, errGone) {
				t.Fatalf("Acquire = %v, want %v", err, errGone)
			}
			synctest.Wait()
		}
	})
}

// A lateGranter is a driver that grants at the moment at which its caller gives up.
type lateGranter struct {
	driver.Driver
	giveUp context.CancelCauseFunc
}

func (l lateGranter) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l.giveUp(errGone)
	return l.Driver.Acquire(context.WithoutCancel(ctx), req)
}

// A grant that meets the end of the caller's context is released, and the caller gets the cause.
func TestGrantAfterTheEnd(t *testing.T) {
	store := new(memlock.Store)
	ctx, giveUp := context.WithCancelCause(t.Context())
	d := fault.Wrap(lateGranter{store.Open(), giveUp}, fault.Plan{})
	defer d.Close()
	if l, err := d.Acquire(ctx, request("a", "o")); l != nil || !errors.Is(err, errGone) {
		t.Errorf("Acquire = %v, %v, want %v", l, err, errGone)
	}
	if got := holders(t, store, "a"); len(got) > 0 {
		t.Errorf("%q hold the lock", got)
	}
}
