package jobtest

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Contender takes one lock, by whatever means, and returns what gives it up. No two calls have the same owner.
type Contender func(ctx context.Context, owner string) (release func(context.Context) error, err error)

// By is the contender who takes the lock of a name through a driver.
func By(d driver.Driver, name string) Contender {
	return func(ctx context.Context, owner string) (func(context.Context) error, error) {
		l, err := d.Acquire(ctx, driver.Request{Name: name, Owner: owner, TTL: time.Minute})
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
}

// An Opener returns a contender with connections of its own, and what closes them.
type Opener func(context.Context) (Contender, func(), error)

// Cycle measures how long it takes to take and give up a lock that nobody else wants.
func Cycle(b *testing.B, open Opener) {
	take, end, err := open(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer end()
	for n := 0; b.Loop(); n++ {
		release, err := take(b.Context(), strconv.Itoa(n))
		if err == nil {
			err = release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// Contended measures cycles that 64 goroutines of one process want at once.
func Contended(b *testing.B, cycle func(context.Context) error) {
	b.SetParallelism((goroutines + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := cycle(b.Context()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

const goroutines = 64

// A Hold is one hold of a process, by the wall clock that all processes of the machine have, in ns.
type Hold struct {
	Got  int64 // the lock was granted
	Left int64 // its release was called
}

// holding is for how long a lock is held in an exchange: long enough for the other process to wait for it again.
const holding = 3 * time.Millisecond

// rounds is how often each process has the lock in an exchange.
const rounds = 300

// HandOver measures from the call of a release to the grant in another process: a child that start starts, which does [Answer].
func HandOver(b *testing.B, open Opener, start func() *livetest.Child) {
	var took []time.Duration
	for b.Loop() {
		child := start()
		take, end, err := open(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, exchange(b, take, child)...)
		end()
	}
	report(b, took)
}

// Answer is the part of the child in [HandOver]: both take and give up the lock many times.
func Answer(ctx context.Context, open Opener) error {
	take, end, err := open(ctx)
	if err != nil {
		return err
	}
	defer end()
	livetest.Say("ready")
	holds, err := repeat(ctx, take, "child ", rounds)
	if err != nil {
		return err
	}
	text, err := json.Marshal(holds)
	livetest.Say("holds", string(text))
	return err
}

// exchange exchanges a lock with a child, and returns how long the hand-overs took, see [HandOvers].
func exchange(b *testing.B, take Contender, child *livetest.Child) []time.Duration {
	b.Helper()
	child.Expect("ready")
	ours, err := repeat(b.Context(), take, "parent ", rounds)
	if err != nil {
		b.Fatal(err)
	}
	var theirs []Hold
	if err := json.Unmarshal([]byte(child.Expect("holds")), &theirs); err != nil {
		b.Fatal(err)
	}
	child.Wait()
	took, overlaps := HandOvers(ours, theirs)
	if overlaps > 0 {
		b.Errorf("%d times two had the lock at once", overlaps)
	}
	return took
}

// repeat takes and gives up a lock many times.
func repeat(ctx context.Context, take Contender, owner string, rounds int) (holds []Hold, err error) {
	for i := range rounds {
		release, err := take(ctx, owner+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		h := Hold{Got: time.Now().UnixNano()}
		time.Sleep(holding)
		h.Left = time.Now().UnixNano()
		if err := release(ctx); err != nil {
			return nil, err
		}
		holds = append(holds, h)
	}
	return holds, nil
}

// HandOvers returns, of the holds of two processes, how long it took from the call of a release in one to the grant in the
// other, in order; and how many grants came before the release.
func HandOvers(one, two []Hold) (took []time.Duration, overlaps int) {
	type hold struct {
		Hold
		second bool
	}
	var all []hold
	for i, holds := range [][]Hold{one, two} {
		for _, h := range holds {
			all = append(all, hold{h, i == 1})
		}
	}
	slices.SortFunc(all, func(a, b hold) int { return int(a.Got - b.Got) })
	for i := 1; i < len(all); i++ {
		gap := time.Duration(all[i].Got - all[i-1].Left)
		if gap < 0 {
			overlaps++
		}
		if all[i].second != all[i-1].second {
			took = append(took, gap)
		}
	}
	slices.Sort(took)
	return took, overlaps
}

// report reports hand-overs, which are in order no more where there were several exchanges, as the result of a benchmark.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		b.Fatal("there was no hand-over")
	}
	slices.Sort(took)
	us := func(percent int) float64 { return float64(took[(len(took)-1)*percent/100].Nanoseconds()) / 1e3 }
	b.ReportMetric(us(50), "p50-µs")
	b.ReportMetric(us(95), "p95-µs")
	b.ReportMetric(0, "ns/op") // of whole exchanges
}
