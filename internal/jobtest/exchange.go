package jobtest

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// A Contender acquires one lock, by whatever means, and returns a function that releases it. No
// two calls have the same id.
type Contender func(ctx context.Context, id string) (release func(context.Context) error, err error)

// By returns a contender that acquires the lock of a name through a driver.
func By(d driver.Driver, name string) Contender {
	return func(ctx context.Context, id string) (func(context.Context) error, error) {
		l, err := d.Acquire(ctx, driver.Request{Name: name, ID: id, TTL: time.Minute})
		if err != nil {
			return nil, err
		}
		return l.Release, nil
	}
}

// An Opener returns a contender with its own connections, and a function that closes them.
type Opener func(context.Context) (Contender, func(), error)

// Cycle measures how long it takes to acquire and release a lock without contention.
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

// Contended measures a cycle that 64 goroutines of one process run concurrently.
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

// OwnNames measures a cycle that 64 goroutines of one process run concurrently, each on a lock of
// its own.
func OwnNames(b *testing.B, d driver.Driver) {
	var names, ids atomic.Int64
	b.SetParallelism((goroutines + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
	b.ResetTimer() // the server was started before
	b.RunParallel(func(pb *testing.PB) {
		take := By(d, "own "+strconv.FormatInt(names.Add(1), 10))
		for pb.Next() {
			release, err := take(b.Context(), strconv.FormatInt(ids.Add(1), 10))
			if err == nil {
				err = release(b.Context())
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// ContendedBy is [Contended] for a lock of a driver.
func ContendedBy(b *testing.B, d driver.Driver) {
	l := locker(b, d)
	Contended(b, func(ctx context.Context) error {
		lock, err := l.Acquire(ctx, "contended")
		if err != nil {
			return err
		}
		return lock.Release()
	})
}

// A Hold is one hold of a process. Its times are in nanoseconds of the wall clock, which all
// processes of the machine share.
type Hold struct {
	Got  int64 // when the lock was granted
	Left int64 // when its release was called
}

// holdTime is how long a process holds the lock in an exchange: long enough for the other
// process to wait for it again.
const holdTime = 3 * time.Millisecond

// rounds is how often each process acquires the lock in an exchange.
const rounds = 300

// HandOver measures the time from the call of a release to the grant in another process. That
// process is a child which start starts, and which calls [Answer].
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

// Answer is the child's part of [HandOver]. Parent and child each acquire
// and release the lock many times.
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

// exchange exchanges a lock with a child, and returns how long the
// hand-overs took, as [HandOvers] does.
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

// repeat acquires and releases a lock many times.
func repeat(ctx context.Context, take Contender, id string, rounds int) (holds []Hold, err error) {
	for i := range rounds {
		release, err := take(ctx, id+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		h := Hold{Got: time.Now().UnixNano()}
		time.Sleep(holdTime)
		h.Left = time.Now().UnixNano()
		if err := release(ctx); err != nil {
			return nil, err
		}
		holds = append(holds, h)
	}
	return holds, nil
}

// HandOvers compares the holds of two processes. It returns how long each hand-over took,
// from the call of a release in one process to the grant in the other, sorted, and how many
// grants came before the release.
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

// report reports hand-overs, of one or several exchanges, as the result of a benchmark.
func report(b *testing.B, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		b.Fatal("there was no hand-over")
	}
	slices.Sort(took)
	us := func(percent int) float64 { return float64(took[(len(took)-1)*percent/100].Nanoseconds()) / 1e3 }
	b.ReportMetric(us(50), "p50-µs")
	b.ReportMetric(us(95), "p95-µs")
	b.ReportMetric(0, "ns/op") // hides the time of whole exchanges
}
