package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cron"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/leader"
)

// A term is the time for which a candidate leads.
type term struct {
	token uint64
	over  chan error // receives the cause of its end
}

// TestLeadersOutliveTheServer kills the server, with all its data, while two candidates
// campaign. The leader is told before its lease is over. When the server is back one of them
// leads again, with a greater token. They never both lead at the same time.
func TestLeadersOutliveTheServer(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	s := used(t, redistest.Single(t, redistest.Password(password)))
	terms := make(chan term, 100)
	var leading atomic.Int32
	lead := func(ctx context.Context, lock *snib.Lock) error {
		if n := leading.Add(1); n != 1 {
			t.Errorf("%d lead at a time, one with token %d", n, lock.Token())
		}
		now := term{lock.Token(), make(chan error, 1)}
		terms <- now
		<-ctx.Done()
		now.over <- context.Cause(ctx)
		leading.Add(-1)
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		l := locker(t, open(t, at(s.Addr())), snib.TTL(ttl))
		all.Go(func() {
			if err := leader.Run(ctx, l, "reconciler", lead, leader.Pause(100*time.Millisecond)); !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v, want the cause of its context", err)
			}
		})
	}
	defer all.Wait()
	defer stop()

	first := await(t, terms, "first leader")
	machine := livetest.Lateness()
	s.Kill()
	killed := time.Now()
	err := await(t, first.over, "end of the first term")
	if took, late := time.Since(killed), machine(); !errors.Is(err, snib.ErrLost) || took > ttl+10*late {
		t.Errorf("the term ended %v after the server, on a machine that was late by %v, with %v; want %v within %v", took, late, err, snib.ErrLost, ttl)
	}
	s.Restart()
	if second := await(t, terms, "second leader"); second.token <= first.token {
		t.Errorf("the second leader has token %d after %d", second.token, first.token)
	}
}

// await receives a value that must come soon.
func await[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("no %s within a minute", what)
		panic("unreachable")
	}
}

// TestTicksOutliveTheServer kills the server, with all its data, between the ticks of a
// schedule that runs on two hosts. No tick is run twice. Without the server none is run, and
// that is an error. When the server is back the ticks go on.
func TestTicksOutliveTheServer(t *testing.T) {
	t.Parallel()
	const minHold = 2 * time.Second // in which both runners ask, even on a busy machine
	s := used(t, redistest.Single(t, redistest.Password(password)))
	var runners [2]*cron.Runner
	for i := range runners {
		var err error
		runners[i], err = cron.New(locker(t, open(t, at(s.Addr())), snib.TTL(3*time.Second)), minHold)
		if err != nil {
			t.Fatal(err)
		}
	}
	schedule := time.NewTicker(2 * minHold)
	defer schedule.Stop()
	tick := func() (runs int, err error) {
		<-schedule.C
		var count atomic.Int32
		var errs [2]error
		var both sync.WaitGroup
		for i, r := range runners {
			both.Go(func() {
				_, errs[i] = r.Run(t.Context(), "report", func(context.Context, *snib.Lock) error { count.Add(1); return nil })
			})
		}
		both.Wait()
		if count.Load() > 1 {
			t.Errorf("a tick was run %d times", count.Load())
		}
		return int(count.Load()), errors.Join(errs[:]...)
	}
	for range 2 {
		if runs, err := tick(); runs != 1 || err != nil {
			t.Errorf("with the server there, a tick was run %d times, with %v; want once", runs, err)
		}
	}
	s.Kill()
	if runs, err := tick(); runs != 0 || err == nil {
		t.Errorf("without the server a tick was run %d times, with %v; want never, and an error", runs, err)
	}
	s.Restart()
	livetest.Await(t, "tick after the server is back", func() error {
		if runs, err := tick(); runs != 1 {
			return errors.Join(fmt.Errorf("it was run %d times", runs), err)
		}
		return nil
	})
}
