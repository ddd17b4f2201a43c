package snib_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

// docs/testing.md contains these tests line for line; internal/readme compares them.

// nightly makes the report, unless another host is making it.
func nightly(ctx context.Context, locker *snib.Locker, makeReport func(context.Context) error) error {
	lock, err := locker.TryAcquire(ctx, "nightly-report")
	switch {
	case errors.Is(err, snib.ErrHeld):
		return nil // another host is on it
	case err != nil:
		return err
	}
	defer lock.Release()
	return makeReport(lock.Context())
}

func newLocker(t *testing.T, driver snib.Driver) *snib.Locker {
	t.Helper()
	locker, err := snib.New(driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locker.Close() })
	return locker
}

func TestNightlyOnTwoHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlock.Store
		here, there := newLocker(t, store.Open()), newLocker(t, store.Open())
		reports := 0
		makeReport := func(ctx context.Context) error {
			reports++
			time.Sleep(time.Hour) // 120 times the TTL, in no time: the clock of the bubble jumps
			return context.Cause(ctx)
		}

		result := make(chan error, 1)
		go func() { result <- nightly(t.Context(), here, makeReport) }()
		time.Sleep(59 * time.Minute) // the first host still works
		if err := nightly(t.Context(), there, makeReport); err != nil {
			t.Errorf("the second host: %v", err)
		}
		if err := <-result; err != nil {
			t.Errorf("the first host: %v", err)
		}
		if reports != 1 {
			t.Errorf("%d reports were made, want 1", reports)
		}
	})
}

func TestNightlyStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.Wrap(memlock.New(), fault.Plan{})
		locker := newLocker(t, store)
		err := nightly(t.Context(), locker, func(ctx context.Context) error {
			store.Sever(fault.Hang) // from now on the store does not answer
			defer store.Heal()
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(30 * time.Second): // the TTL is over: another host may have the lock
				return nil
			}
		})
		if !errors.Is(err, snib.ErrLost) {
			t.Errorf("nightly = %v, want ErrLost before the lease ends", err)
		}
	})
}

func TestNightlyInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := fault.Wrap(memlock.New(), fault.Plan{})
		locker := newLocker(t, store)
		store.Sever(fault.Hang)
		err := nightly(t.Context(), locker, func(context.Context) error { return errors.New("the report was made") })
		if !errors.Is(err, snib.ErrUnavailable) {
			t.Errorf("nightly = %v, want ErrUnavailable, and no report", err)
		}
	})
}
