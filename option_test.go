package snib_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

func TestInvalid(t *testing.T) {
	weak := newSpy(new(memlock.Store))
	weak.info = func(i driver.Info) driver.Info {
		return driver.Info{Backend: "weak", MinTTL: time.Second, MaxTTL: time.Minute}
	}
	sessions := newSpy(new(memlock.Store))
	sessions.info = func(i driver.Info) driver.Info {
		i.Tenure, i.SessionTTL = driver.TenureSession, time.Minute
		return i
	}
	_, err := snib.New(sessions, snib.TTL(time.Minute-1))
	wantErr(t, "New with a TTL below that of the session", err, snib.ErrInvalid)
	if err != nil && !strings.Contains(err.Error(), "shorter than 1m0s") {
		t.Errorf("error %q does not say how long the session lasts", err)
	}
	_, err = snib.New(sessions, snib.Detached())
	wantErr(t, "New with Detached in a session", err, snib.ErrInvalid)
	open(t, sessions, snib.TTL(time.Minute))
	open(t, sessions) // the default TTL is shorter

	tests := []struct {
		name string
		opt  snib.Option
		says string
	}{
		{"TTL", snib.TTL(-time.Second), "TTL: -1s is not positive"},
		{"ShortTTL", snib.TTL(time.Millisecond), "shorter than 1s"},
		{"LongTTL", snib.TTL(time.Hour), "longer than 1m0s"},
		{"MaxWait", snib.MaxWait(0), "MaxWait"},
		{"MaxHold", snib.MaxHold(-1), "MaxHold"},
		{"MinHold", snib.MinHold(-1), "MinHold"},
		{"LockDelay", snib.LockDelay(0), "LockDelay"},
		{"LongLockDelay", snib.LockDelay(time.Minute), "more than 1m0s"},
		{"Slots", snib.Slots(0), "Slots"},
		{"TooManySlots", snib.Slots(math.MaxInt), "is not between"},
		{"NoSlots", snib.Slots(2), "no semaphores"},
		{"Shared", snib.Shared(), "no read/write locks"},
		{"Fair", snib.Fair(), "order of arrival"},
		{"Fencing", snib.RequireFencing(snib.FencingClock), "clock is required, and this backend has none"},
		{"Zero", snib.Option{}, "zero Option"},
		{"Prefix", snib.Prefix("a\x00"), "invalid Prefix: no name can begin with it"},
		{"LongPrefix", snib.Prefix(strings.Repeat("a", driver.MaxName)), "513 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := snib.New(weak, tt.opt)
			wantErr(t, "New", err, snib.ErrInvalid)
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
			_, err = open(t, weak).With(tt.opt).Acquire(t.Context(), "a")
			wantErr(t, "With and Acquire", err, snib.ErrInvalid)
		})
	}
	_, err = snib.New(nil)
	wantErr(t, "New(nil)", err, snib.ErrInvalid)
	_, err = snib.New(memlock.New(), snib.Shared(), snib.Slots(2))
	wantErr(t, "Shared with Slots", err, snib.ErrInvalid)

	_, err = snib.New(memlock.New(), snib.TTL(1000000*time.Hour))
	wantErr(t, "a TTL of a century", err, snib.ErrInvalid)

	l := open(t, memlock.New())
	for _, name := range []string{"", "a\x00b", strings.Repeat("x", 513), "\xff"} {
		_, err := l.Acquire(t.Context(), name)
		wantErr(t, fmt.Sprintf("Acquire(%q)", name), err, snib.ErrInvalid)
	}
	_, err = l.AcquireAll(t.Context())
	wantErr(t, "AcquireAll of nothing", err, snib.ErrInvalid)
}

func TestDefaultTTLIsTheNearestPossible(t *testing.T) {
	d := newSpy(new(memlock.Store))
	d.info = func(i driver.Info) driver.Info { i.MaxTTL = 10 * time.Second; return i }
	var requested time.Duration
	d.acquire = func(_ context.Context, req driver.Request, send func() (driver.Lease, error)) (driver.Lease, error) {
		requested = req.TTL
		return send()
	}
	release(t, acquire(t, open(t, d), "a"))
	if requested != 10*time.Second {
		t.Errorf("TTL = %v, want 10s", requested)
	}
}

// Durations without an end don't overflow into the past. A lock that nobody could free is refused.
func TestEndlessDurations(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	synctest.Test(t, func(t *testing.T) {
		store := new(memlock.Store)
		lock := acquire(t, open(t, store.Open(), snib.MaxHold(endless)), "a")
		time.Sleep(time.Hour)
		release(t, lock)
		release(t, acquire(t, open(t, store.Open(), snib.TTL(driver.LongestTTL)), "b"))
		_, err := snib.New(store.Open(), snib.MinHold(endless))
		if !errors.Is(err, snib.ErrInvalid) || !strings.Contains(err.Error(), "MinHold") {
			t.Errorf("New with a MinHold without end = %v", err)
		}
	})
}
