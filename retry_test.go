package snib_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// RetryTimeout is how long an acquisition is retried while the store is unavailable, also if other
// goroutines of the process wait before it.
func TestRetryTimeout(t *testing.T) {
	for _, tt := range []struct {
		opts []snib.Option
		want time.Duration
	}{
		{nil, driver.RetryTimeout},
		{[]snib.Option{snib.RetryTimeout(0)}, 0},
		{[]snib.Option{snib.RetryTimeout(10 * time.Second)}, 10 * time.Second},
		{[]snib.Option{snib.RetryTimeout(10 * time.Second), snib.Fair()}, 10 * time.Second},
		{[]snib.Option{snib.RetryTimeout(5 * time.Minute)}, 5 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := fault.Wrap(new(memlock.Store).Open(), fault.Plan{})
			l := open(t, d, tt.opts...)
			d.Sever(fault.Fail)
			began := time.Now()
			results := make(chan error, 3)
			for range cap(results) {
				go func() {
					_, err := l.Acquire(t.Context(), "a")
					results <- err
				}()
			}
			for range cap(results) {
				wantErr(t, "Acquire", <-results, snib.ErrUnavailable)
			}
			if got := time.Since(began); got < tt.want || got > tt.want+tt.want/20+time.Millisecond {
				t.Errorf("given up after %v, want %v", got, tt.want)
			}
		})
	}
	if _, err := snib.New(memlock.New(), snib.RetryTimeout(-1)); !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("New with a negative RetryTimeout = %v, want ErrInvalid", err)
	}
}

// One request that fails is no outage for those that wait behind it, however short RetryTimeout is.
func TestRetryTimeoutOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if n, _ := d.count(); n == 1 {
				time.Sleep(time.Second)
				return nil, errDown
			}
			return send()
		}
		l := open(t, d, snib.RetryTimeout(0))
		ask := func() <-chan error {
			result := make(chan error, 1)
			go func() {
				lock, err := l.Acquire(t.Context(), "a")
				_ = lock.Release()
				result <- err
			}()
			synctest.Wait() // its request is under way, or it waits for the first
			return result
		}
		first, second := ask(), ask()
		wantErr(t, "Acquire of the first", <-first, snib.ErrUnavailable)
		if err := <-second; err != nil {
			t.Errorf("Acquire of the second = %v", err)
		}
	})
}

// A store that is full has answered, so an acquisition waits for it as for a holder, with pauses
// that grow, unless it must not retry at all.
func TestRetryTimeoutOfFullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		full := fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)
		d.acquire = unavailableUntil(time.Now().Add(time.Minute), full)
		_, err := open(t, d, snib.RetryTimeout(0)).Acquire(t.Context(), "a")
		wantErr(t, "Acquire without a retry", err, snib.ErrFull)
		if n, _ := d.count(); n != 1 {
			t.Errorf("%d requests without a retry, want one", n)
		}
		release(t, acquire(t, open(t, d, snib.RetryTimeout(time.Millisecond)), "a"))
		if n, _ := d.count(); n > 50 {
			t.Errorf("%d requests in a minute, want few", n)
		}
	})
}

// A wait that ends together with a pause between two retries still says that the store is
// unavailable.
func TestEndOfPause(t *testing.T) {
	const wait = 20 * time.Millisecond // shorter than the first pause, which RetryTimeout cuts off
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(ctx context.Context, _ driver.Request, _ func() (driver.Lease, error)) (driver.Lease, error) {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, syscall.ECONNREFUSED)
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := open(t, d, snib.RetryTimeout(wait)).Acquire(ctx, "a")
			wantErr(t, "Acquire", err, snib.ErrUnavailable)
			wantErr(t, "Acquire", err, syscall.ECONNREFUSED)
		})
	}
}

// The end of a wait says what ended it: a holder, an outage, or the caller's context. It never says
// more than is known.
func TestWhyTheWaitEnded(t *testing.T) {
	errMine := errors.New("my cause")
	refused := fmt.Errorf("%w: %w", driver.ErrUnavailable, syscall.ECONNREFUSED)
	all := map[string]error{
		"held": snib.ErrHeld, "unavailable": snib.ErrUnavailable, "refused": syscall.ECONNREFUSED, "mine": errMine,
		"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
	}
	const wait = 500 * time.Millisecond
	maxWait := func(l *snib.Locker, ctx context.Context) error {
		_, err := l.With(snib.MaxWait(wait)).Acquire(ctx, "a")
		return err
	}
	deadline := func(l *snib.Locker, ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := l.Acquire(ctx, "a")
		return err
	}
	cause := func(l *snib.Locker, ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, wait, errMine)
		defer cancel()
		_, err := l.Acquire(ctx, "a")
		return err
	}
	cancelCause := func(l *snib.Locker, ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(wait, func() { cancel(errMine) })
		_, err := l.Acquire(ctx, "a")
		return err
	}
	both := func(l *snib.Locker, ctx context.Context) error {
		_, err := l.With(snib.MaxWait(wait)).AcquireAll(ctx, "0", "a")
		return err
	}
	anyOf := func(l *snib.Locker, ctx context.Context) error {
		_, err := l.With(snib.MaxWait(wait)).AcquireAny(ctx, "a")
		return err
	}
	anyDeadline := func(l *snib.Locker, ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := l.AcquireAny(ctx, "a")
		return err
	}
	try := func(l *snib.Locker, ctx context.Context) error {
		_, err := l.TryAcquire(ctx, "a")
		return err
	}
	type call = func(*snib.Locker, context.Context) error
	tests := []struct {
		state string
		calls map[string]call
		want  map[string][]string // by call: what the error matches, and nothing else of all
	}{
		{"Held", map[string]call{"try": try, "maxWait": maxWait, "all": both, "any": anyOf, "anyDeadline": anyDeadline,
			"deadline": deadline, "cause": cause, "cancelCause": cancelCause}, map[string][]string{
			"try": {"held"}, "maxWait": {"held"}, "all": {"held"}, "any": {"held"}, "anyDeadline": {"deadline"},
			"deadline": {"deadline"}, "cause": {"deadline", "mine"}, "cancelCause": {"canceled", "mine"},
		}},
		{"Hung", map[string]call{"try": try, "maxWait": maxWait, "all": both, "any": anyOf, "anyDeadline": anyDeadline,
			"deadline": deadline, "cause": cause, "cancelCause": cancelCause}, map[string][]string{
			"try": {"unavailable"}, "maxWait": {"unavailable"}, "all": {"unavailable"}, "any": {"unavailable"},
			"anyDeadline": {"unavailable", "deadline"}, "deadline": {"unavailable", "deadline"},
			"cause": {"unavailable", "deadline", "mine"}, "cancelCause": {"unavailable", "canceled", "mine"},
		}},
		{"Refused", map[string]call{"try": try, "maxWait": maxWait, "all": both, "any": anyOf, "anyDeadline": anyDeadline,
			"deadline": deadline, "cause": cause, "cancelCause": cancelCause}, map[string][]string{
			"try": {"unavailable", "refused"}, "maxWait": {"unavailable", "refused"}, "all": {"unavailable", "refused"},
			"any": {"unavailable", "refused"}, "anyDeadline": {"unavailable", "refused", "deadline"},
			"deadline": {"unavailable", "refused", "deadline"}, "cause": {"unavailable", "refused", "deadline", "mine"},
			"cancelCause": {"unavailable", "refused", "canceled", "mine"},
		}},
		// The driver's own timeouts are not those of the caller.
		{"DriverTimeout", map[string]call{"try": try, "maxWait": maxWait, "deadline": deadline}, map[string][]string{
			"try": {"unavailable", "refused"}, "maxWait": {"unavailable", "refused"},
			"deadline": {"unavailable", "refused", "deadline"},
		}},
	}
	for _, tt := range tests {
		for name, call := range tt.calls {
			bubble(t, tt.state+"/"+name, func(t *testing.T) {
				store := new(memlock.Store)
				d := newSpy(store)
				net := fault.Wrap(d, fault.Plan{})
				l := open(t, net)
				acquire(t, open(t, store.Open()), "a")
				fails := func(answer error) {
					d.acquire = func(context.Context, driver.Request, func() (driver.Lease, error)) (driver.Lease, error) {
						return nil, answer
					}
				}
				switch tt.state {
				case "Hung":
					net.Sever(fault.Hang)
				case "Refused":
					fails(refused)
				case "DriverTimeout":
					fails(fmt.Errorf("%w: %w", refused, context.DeadlineExceeded))
				}
				began := time.Now()
				err := call(l, t.Context())
				if took := time.Since(began); took > wait+driver.CancelTimeout && name != "try" {
					t.Errorf("it took %v, want %v", took, wait)
				}
				want := map[string]bool{}
				for _, kind := range tt.want[name] {
					want[kind] = true
				}
				for kind, target := range all {
					if errors.Is(err, target) != want[kind] {
						t.Errorf("%v: matches %s: %v, want %v", err, kind, !want[kind], want[kind])
					}
				}
			})
		}
	}
}

// Each attempt has an id of its own, so that nothing late of a failed one reaches the next: not its
// withdrawal in the store, and not its loss in the driver.
func TestAttemptsHaveIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		var attempts []driver.Request
		d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if attempts = append(attempts, req); len(attempts) < 3 {
				return nil, driver.ErrUnavailable
			}
			return send()
		}
		lock := acquire(t, open(t, d), "a")
		seen := map[string]bool{}
		for _, req := range attempts {
			if seen[req.ID] || len(req.ID) < 20 || req.ID[0] < 'a' || req.ID[0] > 'z' {
				t.Errorf("id %q: it is not new, can be guessed, or does not begin with a letter", req.ID)
			}
			seen[req.ID] = true
		}
		if len(attempts) != 3 || lock.ID() != attempts[2].ID {
			t.Errorf("%d attempts, and the hold has not the id of the last one", len(attempts))
		}
		attempts[0].OnLost(driver.ErrLost)
		if isClosed(lock.Lost()) {
			t.Error("the loss of a failed attempt ended the hold")
		}
		release(t, lock)
	})
}
