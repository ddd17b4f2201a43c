package snib_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

func TestLateGrantIsNoHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newSpy(new(memlock.Store))
		inTime, calls := time.Now().Add(14*ttl), 0
		d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
			if calls++; calls == 15 {
				return nil, errDown
			}
			l, err := send()
			if time.Now().Before(inTime) {
				time.Sleep(ttl) // the process was stopped after the grant
			}
			return l, err
		}
		locker := open(t, d)
		_, err := locker.TryAcquire(t.Context(), "a")
		wantErr(t, "TryAcquire whose grant came after the end of the lease", err, snib.ErrUnavailable)
		_, err = locker.Acquire(t.Context(), "a")
		wantErr(t, "Acquire whose grants all come after the end of the lease", err, snib.ErrUnavailable)
		if calls != 11 {
			t.Errorf("the store was asked %d times, want once and ten times", calls)
		}
		release(t, acquire(t, locker, "a")) // after three more, and an outage that begins then
		release(t, acquire(t, locker, "a")) // nothing was left behind
	})
}

func TestInvalidGrantIsNoHold(t *testing.T) {
	tests := []struct {
		name  string
		grant driver.Lease
	}{
		{"Nil", nil},
		{"Zero", fakeLease{}},
		{"NoStart", fakeLease{driver.Grant{Token: 1}}},
		{"NoToken", fakeLease{driver.Grant{Start: driver.Now()}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := &fixedDriver{Driver: memlock.New(), lease: tt.grant}
			if lock, err := open(t, d).Acquire(t.Context(), "a"); err == nil {
				t.Errorf("Acquire = %v without an error", lock)
			}
		})
	}
}

type fixedDriver struct {
	driver.Driver
	lease driver.Lease
}

func (d *fixedDriver) Acquire(context.Context, driver.Request) (driver.Lease, error) {
	return d.lease, nil
}

type fakeLease struct{ grant driver.Grant }

func (l fakeLease) Grant() driver.Grant         { return l.grant }
func (fakeLease) Release(context.Context) error { return nil }

func (fakeLease) SetHolder(context.Context, driver.Holder) error { return nil }

func (fakeLease) ID() string { return "fake" }

func TestTokenRegression(t *testing.T) {
	for _, required := range []bool{true, false} {
		t.Run(fmt.Sprintf("Required=%v", required), func(t *testing.T) {
			var events []snib.RegressedEvent
			trace := &snib.Trace{Regressed: func(e snib.RegressedEvent) { events = append(events, e) }}
			d := newSpy(new(memlock.Store))
			opts := []snib.Option{snib.Tracing(trace)}
			if required {
				opts = append(opts, snib.RequireFencing(snib.FencingClock))
			}
			l := open(t, d, opts...)
			first := acquire(t, l, "a")
			release(t, first)
			d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				l, err := send()
				return &oldTokenLease{l, first.Token()}, err
			}
			lock, err := l.Acquire(t.Context(), "a")
			if required {
				wantErr(t, "Acquire with an old token", err, snib.ErrRegressed)
				d.acquire = nil
				lock, err = l.TryAcquire(t.Context(), "a")
				wantErr(t, "TryAcquire after the refused lease was given back", err, nil)
			}
			wantErr(t, "Release", lock.Release(), nil)
			if len(events) != 1 || events[0].Token != first.Token() || events[0].Last != first.Token() {
				t.Errorf("the trace was told %+v", events)
			}
		})
	}
}

type oldTokenLease struct {
	driver.Lease
	token uint64
}

func (l *oldTokenLease) Grant() driver.Grant {
	g := l.Lease.Grant()
	g.Token = l.token
	return g
}

// TestReturnsWhileTheStoreHangs gives acquisitions holds that they must not keep, while the store
// does not answer releases. Acquire returns soon after the end of its context.
func TestReturnsWhileTheStoreHangs(t *testing.T) {
	t.Run("Late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			d.acquire = func(_ context.Context, _ driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
				l, err := send()
				time.Sleep(ttl)
				return l, err
			}
			d.release = silent
			end := time.Now().Add(ttl + time.Second)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			_, err := open(t, d).Acquire(ctx, "a")
			wantErr(t, "Acquire", err, context.DeadlineExceeded)
			if late := time.Since(end); late > driver.CancelTimeout {
				t.Errorf("Acquire returned %v after the end of its context", late)
			}
			time.Sleep(time.Minute) // the release goes on
		})
	})
	t.Run("HandedOver", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := newSpy(new(memlock.Store))
			l := open(t, d)
			first := acquire(t, l, "a")
			got, ended := make(chan *snib.Lock), make(chan time.Time)
			go func() { got <- acquire(t, l, "a") }()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, err := l.Acquire(ctx, "a")
				wantErr(t, "Acquire", err, context.Canceled)
				ended <- time.Now()
			}()
			synctest.Wait()
			release(t, first)
			second := <-got
			d.release = silent
			began := time.Now()
			cancel()
			go second.Release() // it hands the hold over, unless the waiter has left already
			if late := (<-ended).Sub(began); late > driver.CancelTimeout {
				t.Errorf("Acquire returned %v after the end of its context", late)
			}
			time.Sleep(time.Minute)
		})
	})
	bubble(t, "All", func(t *testing.T) {
		store := new(memlock.Store)
		d := newSpy(store)
		d.release = silent
		l := open(t, d)
		acquire(t, open(t, store.Open()), "c")
		for within, opt := range map[time.Duration]snib.Option{
			time.Second + driver.CancelTimeout: snib.MaxWait(time.Second), driver.AnswerTimeout: snib.NoWait(),
		} {
			began := time.Now()
			_, err := l.With(opt).AcquireAll(t.Context(), "a", "b", "c")
			wantErr(t, "AcquireAll", err, snib.ErrHeld)
			if took := time.Since(began); took > within || errors.Is(err, snib.ErrUnreleased) {
				t.Errorf("AcquireAll took %v, want %v at most, and no ErrUnreleased: %v", took, within, err)
			}
			time.Sleep(time.Hour) // the releases go on, and the leases lapse
		}
	})
}

// silent is a release that is not answered.
func silent(ctx context.Context, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}
