package driverkit_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/driverkit"
)

// Requests to a store that does not answer are retried for RetryTimeout, however long each of them
// takes. Requests to a full one are retried longer.
func TestOutage(t *testing.T) {
	silent := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
	full := fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)
	const never = 5 * time.Minute
	tests := []struct {
		name       string
		takes      time.Duration // duration of each request
		answer     func(after time.Duration) error
		begin, end time.Duration // retries end between these times
	}{
		{"Silent", 0, func(time.Duration) error { return silent }, driver.RetryTimeout, driver.RetryTimeout},
		{"Slow", driver.AnswerTimeout, func(time.Duration) error { return silent }, driver.RetryTimeout,
			driver.RetryTimeout + driver.AnswerTimeout},
		{"Full", 0, func(time.Duration) error { return full }, never, never + 12*time.Second},
		{"FullSlow", 2 * driver.RetryTimeout, func(time.Duration) error { return full }, never, never + 3*driver.RetryTimeout},
		{"Slower", 20 * time.Second, func(time.Duration) error { return silent }, driver.RetryTimeout,
			driver.RetryTimeout + 20*time.Second},
		{"Refused", 0, func(time.Duration) error { return driver.ErrHeld }, 0, 0},
		{"Ready", 0, func(time.Duration) error { return nil }, 0, 0},
		{"FullFirst", 0, func(after time.Duration) error {
			if after < 2*time.Minute {
				return full
			}
			return silent
		}, 2*time.Minute + driver.RetryTimeout - 12*time.Second, 2*time.Minute + driver.RetryTimeout + 12*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var outage driverkit.Outage
				began := time.Now()
				for time.Since(began) < never {
					sentAt := time.Now()
					time.Sleep(tt.takes)
					pause, ok := outage.AgainWithin(driver.RetryTimeout, sentAt, tt.answer(time.Since(began)))
					if !ok {
						break
					}
					time.Sleep(pause)
				}
				if took := time.Since(began); took < tt.begin || took > tt.end {
					t.Errorf("it was given up after %v, want %v to %v", took, tt.begin, tt.end)
				}
			})
		})
	}
}

// Pauses grow from a tenth of a second to a few seconds, and have jitter: a lock stands idle for
// 3 s at most after an outage, and a herd keeps no store down. They grow further for a full server.
func TestPause(t *testing.T) {
	silent := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
	full := fmt.Errorf("%w: %w", driver.ErrUnavailable, driver.ErrFull)
	tests := []struct {
		after int // number of failures
		err   error
		takes time.Duration // duration of each request
		mean  time.Duration
	}{
		{0, silent, 0, 100 * time.Millisecond},
		{3, silent, 0, 800 * time.Millisecond},
		{6, silent, 0, 2 * time.Second},
		{1000, silent, 0, 2 * time.Second},
		{0, full, 0, 100 * time.Millisecond},
		{6, full, 0, 6400 * time.Millisecond},
		{1000, full, 0, 8 * time.Second},
		{0, silent, driver.AnswerTimeout, 100 * time.Millisecond},
		{7, silent, driver.AnswerTimeout, 2 * time.Second},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			pauses := map[time.Duration]bool{}
			for range 100 {
				var outage driverkit.Outage
				for range tt.after {
					fail(&outage, tt.err, tt.takes)
				}
				pause, ok := fail(&outage, tt.err, tt.takes)
				if !ok || pause < tt.mean/2 || pause >= tt.mean*3/2 {
					t.Errorf("after %d times %v: pause %v, %v, want about %v", tt.after, tt.err, pause, ok, tt.mean)
				}
				pauses[pause] = true
			}
			if len(pauses) < 50 {
				t.Errorf("after %d times %v: %d different pauses in 100", tt.after, tt.err, len(pauses))
			}
		})
	}
}

// A poller sends fewer and fewer requests, down to the rate that it sets. It starts
// anew once the store has answered.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = time.Second
		silent := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
		var outage driverkit.Outage
		for round := range 2 {
			requests, began := 0, time.Now()
			for time.Since(began) < 2*driver.RetryTimeout {
				rest := time.Until(outage.Rest(time.Now(), silent, longest))
				if first := requests == 0; rest <= 0 || rest > longest || first && rest > longest/5 {
					t.Fatalf("round %d: rest %v after %d requests", round, rest, requests+1)
				}
				requests++
				time.Sleep(rest)
			}
			if least := int(2 * driver.RetryTimeout / longest); requests < least || requests > least+20 {
				t.Errorf("round %d: asked %d times, want little more than %d", round, requests, least)
			}
			if !outage.Rest(time.Now(), nil, longest).IsZero() {
				t.Error("it rests although the store has answered")
			}
		}
	})
}

// A poller that gets no answer gives up after RetryTimeout, and not because of an outage that has
// ended. It waits longer for an answer during an outage.
func TestOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shortest = time.Second
		silent := fmt.Errorf("%w: connection refused", driver.ErrUnavailable)
		var outage driverkit.Outage
		for _, end := range []error{nil, driver.ErrInvalid, silent} {
			for began := time.Now(); time.Since(began) < driver.RetryTimeout; {
				if outage.IsOver(driver.RetryTimeout) {
					t.Fatalf("the outage is over after %v", time.Since(began))
				}
				sentAt, timeout := time.Now(), outage.Timeout(shortest)
				if left := driver.RetryTimeout - time.Since(began); timeout > max(shortest, min(driver.AnswerTimeout, left)) {
					t.Fatalf("timeout %v with %v left", timeout, left)
				}
				time.Sleep(timeout)
				time.Sleep(time.Until(outage.Rest(sentAt, silent, time.Second)))
			}
			outage.Rest(time.Now(), end, time.Second)
			want, wantTimeout := end == silent, shortest //nolint:errorlint // it is the same one
			if outage.IsOver(driver.RetryTimeout) != want || outage.Timeout(shortest) != wantTimeout {
				t.Errorf("after %v: over %v, timeout %v; want %v, %v", end, !want, outage.Timeout(shortest), want, wantTimeout)
			}
		}
	})
}

// An outage counts from a later time for a waiter that began to wait then. An outage that has not
// begun does not begin by that.
func TestCountFrom(t *testing.T) {
	tests := []struct {
		name string
		from []time.Duration // since the outage began
		over time.Duration
	}{
		{"Earlier", []time.Duration{-time.Hour}, driver.RetryTimeout},
		{"Later", []time.Duration{10 * time.Second}, driver.RetryTimeout + 10*time.Second},
		{"LaterThenEarlier", []time.Duration{10 * time.Second, 0}, driver.RetryTimeout + 10*time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var outage driverkit.Outage
				outage.CountFrom(began.Add(-time.Hour))
				if outage.IsOver(driver.RetryTimeout) {
					t.Error("an outage that has not begun is over")
				}
				fail(&outage, driver.ErrUnavailable, 0)
				for _, from := range tt.from {
					outage.CountFrom(began.Add(from))
				}
				for !outage.IsOver(driver.RetryTimeout) {
					time.Sleep(time.Second)
				}
				if got := time.Since(began); got != tt.over {
					t.Errorf("counted from %v, the outage is over after %v, want %v", tt.from, got, tt.over)
				}
			})
		})
	}
}

// fail makes a request that fails, and returns the result of AgainWithin.
func fail(o *driverkit.Outage, err error, takes time.Duration) (time.Duration, bool) {
	asked := time.Now()
	time.Sleep(takes)
	return o.AgainWithin(driver.RetryTimeout, asked, err)
}
