package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

func TestMain(m *testing.M) {
	os.Exit(livetest.Main(m, func(s schedule, ctx context.Context) error {
		return s.run(ctx, func(tick int64, ran bool) { livetest.Say("tick", tick, ran) })
	}))
}

// TestOncePerTick checks that three processes run each tick only once, although their
// clocks differ by 20 ms from one to the next.
func TestOncePerTick(t *testing.T) {
	const (
		hosts = 3
		ticks = 4
		every = 2 * time.Second // a busy machine may be late by half of it
	)
	locks := filepath.Join(t.TempDir(), "locks.db")
	var children []*livetest.Child
	for i := range hosts {
		children = append(children, livetest.StartChild(t,
			schedule{Locks: locks, Every: every, Skew: time.Duration(i) * 20 * time.Millisecond}))
	}
	reports, runs := make(map[uint64]int), make(map[uint64]int)
	nextTick := func(c *livetest.Child) (tick uint64) {
		t.Helper()
		var ran bool
		text := c.Expect("tick")
		if _, err := fmt.Sscan(text, &tick, &ran); err != nil {
			t.Fatalf("a child says %q: %v", text, err)
		}
		reports[tick]++
		if ran {
			runs[tick]++
		}
		return tick
	}
	at := make([]uint64, hosts)
	for i, c := range children {
		at[i] = nextTick(c)
	}
	first := slices.Max(at) // from this tick on, all processes take part
	last := first + ticks - 1
	for i, c := range children {
		for at[i] < last {
			at[i] = nextTick(c)
		}
	}
	for tick := first; tick <= last; tick++ {
		if reports[tick] != hosts || runs[tick] != 1 {
			t.Errorf("of %d processes, %d came to tick %d, and %d ran it; want one", hosts, reports[tick], tick, runs[tick])
		}
	}
	for _, c := range children {
		c.End()
		c.Wait()
	}
}

func TestRefuses(t *testing.T) {
	locks := filepath.Join(t.TempDir(), "locks.db")
	for _, s := range []schedule{{Locks: locks}, {Locks: locks, Every: -1}, {Locks: locks, Every: time.Second, Skew: -1},
		{Every: time.Second, Locks: locks + "/no"}} {
		if err := s.run(t.Context(), func(int64, bool) { t.Errorf("%+v runs", s) }); err == nil {
			t.Errorf("%+v ends without an error", s)
		}
	}
}
