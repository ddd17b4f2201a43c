package quorumtest

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The flags choose the seeds. "make simulate SEEDS=100000" sets them.
var (
	seeds = flag.Uint64("seeds", 100, "how many seeds to simulate")
	first = flag.Uint64("first", 0, "the first of them")
)

// TestSimulate runs worlds with the sound protocol. No promise may be broken, except where the
// cell allows it.
func TestSimulate(t *testing.T) {
	var total totals
	began := time.Now()
	sums := make([]totals, len(cells))
	var mu sync.Mutex
	var failed []uint64
	forEachSeed(*first, *seeds, func(seed uint64) bool {
		r := Simulate(seed, Sound, false)
		mu.Lock()
		defer mu.Unlock()
		sums[seed%uint64(len(cells))].add(r)
		if r.Violations != nil {
			failed = append(failed, seed)
		}
		return len(failed) < 10
	})
	for i := range sums {
		t.Logf("%s: %v", cells[i].Name, &sums[i])
		total.merge(&sums[i])
	}
	t.Logf("all: %v; it took %v", &total, time.Since(began).Round(time.Second))
	if total.acquisitions < 20*total.worlds {
		t.Errorf("only %d acquisitions in %d worlds: there is not much that could go wrong", total.acquisitions, total.worlds)
	}
	slices.Sort(failed)
	for i, seed := range failed {
		r := Simulate(seed, Sound, i == 0)
		if r.Violations == nil {
			t.Errorf("seed %d: a violation that does not come again", seed)
		}
		t.Error(r.Report())
	}
}

// totals adds up the results of several worlds.
type totals struct {
	worlds, acquisitions, renewals, admissions, overlaps, disorders int

	events        uint64
	time, healing time.Duration
}

func (s *totals) add(r Result) {
	s.merge(&totals{1, r.Acquisitions, r.Renewals, r.Admissions, r.Overlaps, r.Disorders, r.Events, r.Time, r.Healing})
}

func (s *totals) merge(other *totals) {
	s.worlds += other.worlds
	s.acquisitions += other.acquisitions
	s.renewals += other.renewals
	s.admissions += other.admissions
	s.overlaps += other.overlaps
	s.disorders += other.disorders
	s.events += other.events
	s.time += other.time
	s.healing = max(s.healing, other.healing)
}

func (s *totals) String() string {
	return fmt.Sprintf("%d worlds, %v, %d events, %d acquisitions, %d renewals, %d admissions; allowed: %d overlaps, "+
		"%d tokens out of order; healed within %v",
		s.worlds, s.time.Round(time.Second), s.events, s.acquisitions, s.renewals, s.admissions, s.overlaps, s.disorders,
		s.healing.Round(time.Millisecond))
}

// forEachSeed calls f for n seeds on all processors, until f returns false.
func forEachSeed(first, n uint64, f func(seed uint64) bool) {
	var next atomic.Uint64
	next.Store(first)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for seed := next.Add(1) - 1; seed < first+n; seed = next.Add(1) - 1 {
				if !f(seed) {
					next.Store(first + n)
				}
			}
		})
	}
	workers.Wait()
}

// TestReplay runs worlds repeatedly. The same happens each time, to the nanosecond, whether the
// timeline is kept or not, and whatever else runs.
func TestReplay(t *testing.T) {
	forEachSeed(0, 2*uint64(len(cells)), func(seed uint64) bool {
		a, b, c := Simulate(seed, Sound, true), Simulate(seed, Sound, true), Simulate(seed, Sound, false)
		if len(a.Timeline) < 100 || !slices.Equal(a.Timeline, b.Timeline) {
			t.Errorf("seed %d: timelines of %d and %d lines, which are not equal, or too short", seed, len(a.Timeline),
				len(b.Timeline))
		}
		if a.Events != c.Events || a.Time != c.Time || a.Acquisitions != c.Acquisitions {
			t.Errorf("seed %d: %d events in %v with a timeline, %d in %v without", seed, a.Events, a.Time, c.Events, c.Time)
		}
		return true
	})
}

// TestBroken breaks the protocol, and demands that the judge notices. It logs the seed
// that revealed the break, which is the same every time. For RaiseAnyone and RaiseDown
// see TestDirected.
func TestBroken(t *testing.T) {
	tests := []struct {
		broken Break
		says   string // part of the judge's report
		first  uint64 // the seed to begin with; those before it are known to reveal nothing
		within uint64 // the number of seeds to try
	}{
		{VoteAtOnce, "has lock", 0, 100},
		{RetakeBlind, "token", 20, 500},
		{ExtendAnyone, "changes the key", 0, 10},
		{FreeAnyone, "changes the key", 0, 10},
		{NoReading, "token", 75, 500},
		{NoWaiting, "which", 30, 500},
		{ReadingFirst, "token", 2100, 3000},
		{ReplyTime, "which", 35, 500},
		{SameNonce, "token", 0, 100},
	}
	for _, tt := range tests {
		t.Run(string(tt.broken), func(t *testing.T) {
			t.Parallel()
			for seed := tt.first; seed < tt.first+tt.within; seed++ {
				r := Simulate(seed, tt.broken, false)
				if r.Violations == nil {
					continue
				}
				t.Logf("found out by seed %d, after %v: %s", seed, r.Time, r.Violations[0])
				r = Simulate(seed, tt.broken, true)
				if report := r.Report(); !strings.Contains(report, tt.says) || !strings.Contains(report, "VIOLATION") {
					t.Errorf("the report does not say %q:\n%s", tt.says, report)
				}
				return
			}
			t.Errorf("not found out within %d seeds from %d on", tt.within, tt.first)
		})
	}
}

// TestJudge shows the judge holds and requests that break a promise.
func TestJudge(t *testing.T) {
	const far = time.Hour
	type maker = func(lock int, first, last, floor uint64, left time.Duration) *hold
	tests := []struct {
		name string
		want string // empty: nothing is wrong
		do   func(j *judge, hold maker)
	}{
		{"Fine", "", func(j *judge, hold maker) {
			a := hold(0, 3, 5, 2, far)
			j.checkAcquired(a)
			j.checkAcquired(hold(1, 3, 5, 2, far)) // another lock
			a.ended = true
			j.removeHold(a)
			j.checkAcquired(hold(0, 6, 6, 5, far))
		}},
		{"EqualToAnEarlierOne", "but 5 was granted before", func(j *judge, hold maker) {
			j.checkAcquired(hold(0, 5, 5, 5, far))
		}},
		{"Duplicate", "token 5, for the second time", func(j *judge, hold maker) {
			a := hold(0, 3, 5, 0, far)
			j.checkAcquired(a)
			a.ended = true
			j.checkAcquired(hold(0, 5, 6, 0, far))
		}},
		{"TwoValidHolds", "which client 0 has", func(j *judge, hold maker) {
			j.checkAcquired(hold(0, 1, 1, 0, 1))
			j.checkAcquired(hold(0, 2, 2, 1, far))
		}},
		{"RenewedBesideAnother", "which client 0 has", func(j *judge, hold maker) {
			a := hold(0, 1, 1, 0, far)
			j.holds[0] = append(j.holds[0], hold(0, 2, 2, 1, far))
			j.checkRenewal(a)
		}},
		{"AcquiredLate", "not valid any more", func(j *judge, hold maker) {
			j.checkAcquired(hold(0, 1, 1, 0, 0))
		}},
		{"Revived", "which has ended", func(j *judge, hold maker) {
			j.checkRenewal(hold(0, 1, 1, 0, 0))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(8*3, Sound, false) // several locks, and no violation is allowed
			w.locks, w.judge.greatest, w.judge.holds = 2, make([]uint64, 2), make([][]*hold, 2)
			c := w.clients[0]
			tt.do(&w.judge, func(lock int, first, last, floor uint64, left time.Duration) *hold {
				a := &attempt{c: c, lock: lock, floor: floor}
				return &hold{attempt: a, first: first, last: last, end: c.instant().Add(left), life: c.life}
			})
			got := strings.Join(w.judge.violations, "; ")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) || len(w.judge.violations) > 1 {
				t.Errorf("violations %q, want %q", got, tt.want)
			}
		})
	}
}
