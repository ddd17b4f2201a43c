package etcdlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
)

// TestRetryTimeout checks how long an attempt continues while etcd can't be reached.
func TestRetryTimeout(t *testing.T) {
	down := &reachError{reason: "no answer", noAnswer: true}
	tests := []struct {
		name   string
		queued bool
		round  time.Duration // duration of the round that failed first
		outage time.Duration // from then on
		want   bool
	}{
		{"Queued", true, 0, driver.RetryTimeout - time.Second, true},
		{"QueuedForLong", true, time.Hour, driver.RetryTimeout - time.Second, true},
		{"QueuedLonger", true, 0, driver.RetryTimeout + time.Second, false},
		{"NotQueued", false, callTimeout, unqueuedRetryTimeout - callTimeout - time.Second, true},
		{"NotQueuedLonger", false, callTimeout, unqueuedRetryTimeout - callTimeout + time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				time.Sleep(tt.round)
				// The session was answered just before the failure.
				a := &attempt{wasQueued: tt.queued, s: &session{ttl: time.Minute, start: driver.Now()}}
				a.shouldRetry(down, began)
				began = time.Now()
				time.Sleep(tt.outage)
				if got := a.shouldRetry(down, began); got != tt.want {
					t.Errorf("shouldRetry after %v = %v, want %v", tt.outage, got, tt.want)
				}
			})
		})
	}
}

// TestSilence checks since when a session has got no answer: since the first keep-alive after the
// last answer, and no longer than the session lasts.
func TestSilence(t *testing.T) {
	const ttl = 15 * time.Second
	for _, tt := range []struct{ answered, least, most time.Duration }{
		{0, 0, 0},
		{ttl / keepAlivesPerTTL, 0, time.Second},
		{ttl, ttl - ttl/keepAlivesPerTTL, ttl},
		{time.Hour, ttl, ttl}, // the machine has slept
	} {
		s := &session{ttl: ttl, start: driver.Now().Add(-tt.answered)}
		if got := s.silence(); got < tt.least || got > tt.most {
			t.Errorf("silence, %v after the last answer = %v, want %v to %v", tt.answered, got, tt.least, tt.most)
		}
	}
}
