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
	"github.com/sniblock/snib/driver/fault"
	"github.com/sniblock/snib/memlock"
)

const (
	hosts    = 3
	skew     = 20 * time.Millisecond // between the clocks of successive hosts
	interval = time.Second
	ttl      = 30 * time.Second
)

// host returns what another host has: its own Locker on the same store, and its connection to
// the store, which a test can cut.
func host(t *testing.T, s *memlock.Store) (*snib.Locker, *fault.Driver) {
	t.Helper()
	d := fault.Wrap(s.Open(), fault.Plan{})
	l, err := snib.New(d, snib.TTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d
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
			l, _ := host(t, &s)
			locker, err := gocrondist.NewLocker(l, interval/2)
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
		l, _ := host(t, &s)
		locker, err := gocrondist.NewLocker(l, interval/2)
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

// One of three schedulers runs all ticks. When it is cut off from the store it stops, and within
// the TTL another one continues.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, after = 20, 20 // ticks
		var s memlock.Store
		b := newLogbook()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var nets []*fault.Driver
		var electors []*gocrondist.Elector
		for i := range hosts {
			l, net := host(t, &s)
			e := gocrondist.NewElector(l, "scheduler")
			running.Go(func() {
				if err := e.Run(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("Run = %v", err)
				}
			})
			synctest.Wait() // the first one leads
			b.schedule(t, i, gocron.WithDistributedElector(e))
			nets, electors = append(nets, net), append(electors, e)
		}
		b.waitAfter(before - 1)
		for tick := range before {
			if got := b.hostsOf(tick); len(got) != 1 || got[0] != 0 {
				t.Errorf("tick %d was run by the hosts %v, want the first", tick, got)
			}
		}

		old := electors[0].Lock()
		nets[0].Sever(fault.Fail)
		<-old.Lost()
		if err := electors[0].IsLeader(ctx); !errors.Is(err, gocrondist.ErrNotLeader) {
			t.Errorf("IsLeader = %v at the moment of the loss, want ErrNotLeader", err)
		}
		time.Sleep(ttl / 10)
		gap := int(time.Since(b.first)/interval) + 1
		b.waitAfter(gap + after - 1)
		for tick := gap; tick < gap+after; tick++ {
			if got := b.hostsOf(tick); len(got) != 1 || got[0] == 0 {
				t.Errorf("tick %d was run by the hosts %v, want one of the others", tick, got)
			}
		}
		for tick := before; tick < gap; tick++ { // perhaps not run, but not run twice
			if got := b.hostsOf(tick); len(got) > 1 {
				t.Errorf("tick %d was run by the hosts %v", tick, got)
			}
		}

		cancel()
		running.Wait()
		for i, e := range electors {
			if err := e.IsLeader(t.Context()); !errors.Is(err, gocrondist.ErrNotLeader) || e.Lock() != nil {
				t.Errorf("host %d, which has resigned: IsLeader = %v, Lock %v", i, err, e.Lock())
			}
		}
	})
}
