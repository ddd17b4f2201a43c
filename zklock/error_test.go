package zklock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/sniblock/snib/driver"
)

// TestEnded checks the error of an acquisition whose time ran out. It also names an outage, if
// there was one.
func TestEnded(t *testing.T) {
	d, err := New([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	errEnough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	reconnecting := &session{d: d, ctx: t.Context(), up: make(chan struct{})}
	for _, tt := range []struct {
		err    error
		outage bool
	}{
		{classify(zk.ErrConnectionClosed), true},
		{reconnecting.ready(ctx), true},
		{classify(zk.ErrNoNode), false},
		{errEnough, false},
	} {
		err := d.explain(contextError(errEnough, tt.err, true), "/snib")
		if !errors.Is(err, errEnough) || errors.Is(err, driver.ErrUnavailable) != tt.outage ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("the error after %v is %q, want that of the context, and that the store was unavailable: %v", tt.err, err,
				tt.outage)
		}
	}
}

// TestRetryTimeout checks how long an attempt continues without a connection.
func TestRetryTimeout(t *testing.T) {
	tests := []struct {
		name   string
		dial   time.Duration // the dial timeout
		queued bool
		noWait bool
		silent time.Duration // since the first ping without an answer
		outage time.Duration // from the first error on
		want   bool
	}{
		{"Queued", 4 * time.Second, true, false, 0, driver.RetryTimeout - time.Second, true},
		{"QueuedLonger", 4 * time.Second, true, false, 0, driver.RetryTimeout + time.Second, false},
		{"QueuedSilent", 4 * time.Second, true, false, 10 * time.Second, driver.RetryTimeout - 11*time.Second, true},
		{"QueuedSilentLonger", 4 * time.Second, true, false, 10 * time.Second, driver.RetryTimeout - 9*time.Second, false},
		{"QueuedNoWait", 4 * time.Second, true, true, 0, 5 * time.Second, false},
		{"NotQueued", 4 * time.Second, false, false, 0, 3 * time.Second, true},
		{"NotQueuedLonger", 4 * time.Second, false, false, 0, 5 * time.Second, false},
		{"SlowDial", 11 * time.Second, false, false, 0, 10 * time.Second, true},
		{"SlowDialLonger", 11 * time.Second, false, false, 0, 12 * time.Second, false}, // the core retries
		{"SlowDialNoWait", 11 * time.Second, false, true, 0, 12 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &Driver{conf: config{dialTimeout: tt.dial}}
				a := &attempt{d: d, req: driver.Request{NoWait: tt.noWait}, s: &session{timeout: 5 * time.Minute},
					wasQueued: tt.queued}
				a.s.recordAnswer(driver.Now())
				time.Sleep(time.Hour) // the process was stopped
				if tt.silent > 0 {
					a.s.recordPing()
					time.Sleep(tt.silent)
				}
				a.began = time.Now()
				a.shouldRetry()
				time.Sleep(tt.outage)
				if got := a.shouldRetry(); got != tt.want {
					t.Errorf("shouldRetry after %v = %v, want %v", tt.outage, got, tt.want)
				}
			})
		})
	}
}
