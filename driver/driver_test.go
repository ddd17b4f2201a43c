package driver_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/sniblock/snib/driver"
)

func TestCheckName(t *testing.T) {
	tests := []struct {
		name, says string
	}{
		{"a", ""},
		{" ", ""},
		{"日本/%_*?[]{}\n", ""},
		{strings.Repeat("x", 512), ""},
		{"", "empty"},
		{strings.Repeat("x", 513), "513 bytes"},
		{"a\x00", "NUL"},
		{"\xff", "UTF-8"},
	}
	for _, tt := range tests {
		err := driver.CheckName(tt.name)
		if tt.says == "" && err != nil {
			t.Errorf("CheckName(%q) = %v, want nil", tt.name, err)
		}
		if tt.says != "" && (!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("CheckName(%q) = %v, want ErrInvalid that says %q", tt.name, err, tt.says)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"", "a", "a\x00b", "\xff", strings.Repeat("é", 256), strings.Repeat("é", 257)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		good := utf8.ValidString(name) && !strings.Contains(name, "\x00") && len(name) >= 1 && len(name) <= 512
		err := driver.CheckName(name)
		if good != (err == nil) {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("the error for %q is not one clean line: %q", name, err)
		}
	})
}

func TestNextToken(t *testing.T) {
	at := time.UnixMicro(1_000_000)
	tests := []struct {
		last  uint64
		clock time.Time
		want  uint64
	}{
		{0, at, 1_000_000},
		{999_999, at, 1_000_000},
		{1_000_000, at, 1_000_001},            // within the microsecond
		{5_000_000, at, 5_000_001},            // the clock went back
		{7, time.Unix(-5, 0), 8},              // before 1970
		{1, time.UnixMicro(1 << 51), 1 << 51}, // in 2041, still exact as a float64
	}
	for _, tt := range tests {
		if got := driver.NextToken(tt.last, tt.clock); got != tt.want {
			t.Errorf("NextToken(%d, %v) = %d, want %d", tt.last, tt.clock, got, tt.want)
		}
	}
}

func TestInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var zero driver.Instant
		start := driver.Now()
		if start.IsZero() || !zero.IsZero() || !zero.Before(start) {
			t.Errorf("zero %v, now %v", zero, start)
		}
		end := start.Add(time.Hour)
		if got := end.Left(start); got != time.Hour {
			t.Errorf("Left = %v", got)
		}
		time.Sleep(time.Hour - 1)
		if end.Reached(driver.Now()) {
			t.Error("reached a nanosecond early")
		}
		time.Sleep(time.Nanosecond)
		if now := driver.Now(); !end.Reached(now) || now.Sub(start) != time.Hour || now.SteppedSince(start) != 0 {
			t.Errorf("after an hour: reached %v, %v, stepped %v", end.Reached(now), now.Sub(start), now.SteppedSince(start))
		}
	})
}

func TestAwait(t *testing.T) {
	errStore := errors.New("store")
	synctest.Test(t, func(t *testing.T) {
		hints := make(chan struct{}, 1)
		tries := 0
		try := func(context.Context) (int, time.Duration, error) {
			if tries++; tries < 3 {
				return 0, time.Minute, driver.ErrHeld
			}
			return 7, 0, nil
		}
		began := time.Now()
		// The hint shortens the first sleep; the second has its full length.
		time.AfterFunc(time.Second, func() { hints <- struct{}{} })
		got, err := driver.Await(t.Context(), hints, try)
		if want := time.Second + time.Minute; got != 7 || err != nil || time.Since(began) != want {
			t.Errorf("Await = %d, %v after %v, want 7, nil after %v", got, err, time.Since(began), want)
		}

		_, err = driver.Await(t.Context(), hints, func(context.Context) (int, time.Duration, error) { return 0, 0, errStore })
		if !errors.Is(err, errStore) {
			t.Errorf("Await = %v, want the error of try", err)
		}

		errEnough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errEnough)
		defer cancel()
		held := func(context.Context) (int, time.Duration, error) { return 0, time.Hour, driver.ErrHeld }
		_, err = driver.Await(ctx, hints, held)
		if !errors.Is(err, errEnough) {
			t.Errorf("Await = %v, want the cause of its context", err)
		}
		tries = 0
		_, err = driver.Await(ctx, hints, try)
		if !errors.Is(err, errEnough) || tries != 0 {
			t.Errorf("Await on a context that was done = %v after %d tries", err, tries)
		}
	})
}

func TestRequestCheck(t *testing.T) {
	tests := []struct {
		name string
		req  driver.Request
		says string // "" if there is nothing wrong
	}{
		{"Plain", driver.Request{TTL: time.Second}, ""},
		{"Semaphore", driver.Request{TTL: time.Second, Slots: 3}, ""},
		{"Shared", driver.Request{TTL: time.Second, Shared: true}, ""},
		{"NoTTL", driver.Request{}, "TTL 0s: it must be positive"},
		{"NegativeTTL", driver.Request{TTL: -1}, "TTL -1ns: it must be positive"},
		{"LongMinHold", driver.Request{TTL: time.Second, MinHold: math.MaxInt64}, "MinHold 2562047h"},
		{"NegativeSlots", driver.Request{TTL: time.Second, Slots: -1}, "slots -1: it is not between"},
		{"TooManySlots", driver.Request{TTL: time.Second, Slots: math.MaxInt}, "it is not between"},
		{"SharedSemaphore", driver.Request{TTL: time.Second, Slots: 3, Shared: true}, "no read side"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.req.Check()
			if tt.says == "" && err != nil || tt.says != "" &&
				(!errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Check = %v, want %q", err, tt.says)
			}
		})
	}
}
