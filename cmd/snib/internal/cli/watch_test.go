package cli

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestObserverRests: a store that takes long for each look is looked at for a tenth of the time, and one that hung once, or failed, is
// looked at again soon.
func TestObserverRests(t *testing.T) {
	const fast = 10 * time.Millisecond
	tests := []struct {
		name  string
		looks []time.Duration // take so long
		fails bool            // all but the first
		want  time.Duration   // from the end of the last one to the next
	}{
		{"Fast", []time.Duration{fast, fast}, false, time.Second},
		{"First", []time.Duration{8 * time.Second}, false, time.Second},
		{"Hung", []time.Duration{fast, 8 * time.Second}, false, time.Second},
		{"HungBefore", []time.Duration{8 * time.Second, fast}, false, time.Second},
		{"Slow", []time.Duration{8 * time.Second, 9 * time.Second}, false, 72 * time.Second},
		{"Failing", []time.Duration{8 * time.Second, 5 * time.Second, 5 * time.Second}, true, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var ended time.Time
				looks := 0
				o := observer{
					every: time.Second,
					look: func() (snapshot, error) {
						if looks == len(tt.looks) {
							if got := time.Since(ended); got != tt.want {
								t.Errorf("it rests for %v, want %v", got, tt.want)
							}
							cancel()
							return nil, nil
						}
						time.Sleep(tt.looks[looks])
						ended = time.Now()
						if looks++; tt.fails && looks > 1 {
							return nil, errors.New("out of reach")
						}
						return snapshot{}, nil
					},
					fails: func(error) {},
					seen:  func(_, _ snapshot, _ time.Duration) error { return nil },
				}
				if err := o.run(ctx); err != nil {
					t.Errorf("run = %v", err)
				}
			})
		})
	}
}
