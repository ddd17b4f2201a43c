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
				a := &attempt{wasQueued: tt.queued}
				began := time.Now()
				time.Sleep(tt.round)
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
