package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/memlock"
)

// Three processes run each tick only once, although their clocks differ by 20 ms from one to the
// next.
func TestOncePerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			hosts = 3
			ticks = 60
			every = 2 * time.Second
		)
		ctx, cancel := context.WithCancel(t.Context())
		store := new(memlock.Store)
		var mu sync.Mutex
		reports, runs := make(map[int64]int), make(map[int64]int)
		var running sync.WaitGroup
		for i := range hosts {
			running.Go(func() {
				s := schedule{Every: every, Skew: time.Duration(i) * 20 * time.Millisecond}
				if err := s.run(ctx, store.Open(), func(tick int64, ran bool) {
					mu.Lock()
					defer mu.Unlock()
					reports[tick]++
					if ran {
						runs[tick]++
					}
				}); err != nil {
					t.Errorf("host %d: %v", i, err)
				}
			})
		}
		first := time.Now().UnixNano()/int64(every) + 1
		time.Sleep(ticks*every + every/2) // to a time at which no job runs
		cancel()
		running.Wait()
		for tick := first; tick < first+ticks; tick++ {
			if reports[tick] != hosts || runs[tick] != 1 {
				t.Errorf("of %d hosts, %d came to tick %d, and %d ran it; want one", hosts, reports[tick], tick-first, runs[tick])
			}
		}
	})
}

func TestRefuses(t *testing.T) {
	for _, s := range []schedule{{}, {Every: -1}, {Every: time.Second, Skew: -1}} {
		if err := s.run(t.Context(), memlock.New(), func(int64, bool) { t.Errorf("%+v runs", s) }); err == nil {
			t.Errorf("%+v ends without an error", s)
		}
	}
}
