package gocrondist_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron/gocrondist"
	"github.com/sniblock/snib/memlock"
)

const (
	hosts    = 3
	skew     = 20 * time.Millisecond // between the clocks of successive hosts
	interval = time.Second
)

// host returns the Locker of another host on the same store.
func host(t *testing.T, s *memlock.Store) *snib.Locker {
	t.Helper()
	l, err := snib.New(s.Open())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// A logbook records which hosts ran each tick, in order. Ticks are counted from the first one.
type logbook struct {
	mu    sync.Mutex
	first time.Time
	runs  map[int][]int
}

func newLogbook() *logbook {
	return &logbook{first: time.Now().Add(interval), runs: make(map[int][]int)}
}

func (b *logbook) run(host int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tick := int(time.Since(b.first) / interval)
	b.runs[tick] = append(b.runs[tick], host)
}

// hostsOf returns the hosts that ran a tick.
func (b *logbook) hostsOf(tick int) []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runs[tick]
}

// waitAfter waits until half an interval after a tick. No job runs then, which matters at
// the end of a test: gocron's Shutdown waits for a running job without sleeping, so
// in a bubble no time would pass.
func (b *logbook) waitAfter(tick int) {
	time.Sleep(time.Until(b.first.Add(time.Duration(tick)*interval + interval/2)))
}

// schedule starts the scheduler of a host, whose job runs for a millisecond in each interval,
// delayed by the host's skew. The scheduler is shut down at the end of the test.
func (b *logbook) schedule(t *testing.T, host int, with gocron.SchedulerOption) {
	t.Helper()
	s, err := gocron.NewScheduler(with)
	if err != nil {
		t.Fatal(err)
	}
	job := func() { b.run(host); time.Sleep(time.Millisecond) }
	start := b.first.Add(time.Duration(host) * skew)
	if _, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(job), gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(start))); err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

// Of three schedulers, exactly one runs each tick.
func TestLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ticks = 60
		var s memlock.Store
		b := newLogbook()
		for i := range hosts {
			locker, err := gocrondist.NewLocker(host(t, &s), interval/2)
			if err != nil {
				t.Fatal(err)
			}
			b.schedule(t, i, gocron.WithDistributedLocker(locker))
		}
		b.waitAfter(ticks - 1)
		for tick := range ticks {
			if got := b.hostsOf(tick); len(got) != 1 {
				t.Errorf("tick %d was run by the hosts %v, want one", tick, got)
			}
		}
	})
}

// A job that is cut short, for example by Shutdown, releases its lock
// with a context that has ended.
func TestUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s memlock.Store
		locker, err := gocrondist.NewLocker(host(t, &s), interval/2)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := locker.Lock(ctx, "report")
		if err != nil {
			t.Fatal(err)
		}
		if other, err := locker.Lock(ctx, "report"); !errors.Is(err, snib.ErrHeld) || other != nil {
			t.Errorf("the second Lock = %v, %v, want nil, ErrHeld", other, err)
		}
		cancel()
		if err = lock.Unlock(ctx); err != nil {
			t.Errorf("Unlock with a context that is over = %v", err)
		}
		time.Sleep(interval / 2)
		if _, err = locker.Lock(t.Context(), "report"); err != nil {
			t.Errorf("Lock after Unlock and minHold = %v", err)
		}
	})
}

func TestNewLocker(t *testing.T) {
	if got, err := gocrondist.NewLocker(nil, interval); got != nil || !errors.Is(err, snib.ErrInvalid) {
		t.Errorf("NewLocker(nil) = %v, %v, want nil, ErrInvalid", got, err)
	}
}
