package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/cmd/snib/internal/backend"
)

// A benchCommand is one call of "snib bench".
type benchCommand struct {
	*app
	partDuration *duration
	parallel     int
	output       *choice
	line         *progressLine
}

func (a *app) newBenchCommand() *cobra.Command {
	b := &benchCommand{app: a}
	cmd := &cobra.Command{
		Use:     "bench [URL]",
		Short:   "measure a store: cycles per second, hand-overs, percentiles",
		Example: benchExamples,
		Long:    benchNotes,
		Args:    atMostOneArg,

		ValidArgsFunction: a.completeURL,
	}
	f := cmd.Flags()
	f.SortFlags = false
	b.partDuration = addDuration(cmd, "for", "", "the duration of each of the three parts", 3*time.Second, time.Millisecond)
	f.IntVar(&b.parallel, "parallel", 16, "the number of goroutines that lock at a time")
	b.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if b.parallel < 1 || b.parallel > 10_000 {
			return usagef("--parallel %d: give a number from 1 to 10000", b.parallel)
		}
		if err := a.setStoreURL(args); err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		return b.run(ctx)
	}
	return cmd
}

// run measures with two connections to the store, as two processes would have.
func (b *benchCommand) run(ctx context.Context) error {
	b.line = b.newProgressLine()
	defer b.line.clear()
	var pair [2]*snib.Locker
	var url string
	for i := range pair {
		s, err := b.open(backend.Take)
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // every lock was released
		if s.Private() && i == 1 {
			pair[1] = pair[0] // two private stores would share no lock
			break
		}
		if pair[i], err = snib.New(s.Driver); err != nil {
			return err
		}
		url = s.URL
	}
	name := "snib-bench/" + rand.Text() + "/"
	// Fail at once if the store withholds locks, rather than report 0 cycles.
	if lock, err := pair[0].TryAcquire(ctx, name+"first"); err != nil {
		return b.explainFailure(ctx, url, err)
	} else if err := lock.Release(); err != nil {
		return b.explainFailure(ctx, url, err)
	}
	parts := []struct {
		name    string
		workers int
		cycle   func(ctx context.Context, worker int, t *histogram) error
	}{
		{"alone", 1, func(ctx context.Context, _ int, t *histogram) error { return lockOnce(ctx, pair[0], name+"alone", t) }},
		{"own names", b.parallel, func(ctx context.Context, i int, t *histogram) error {
			return lockOnce(ctx, pair[0], fmt.Sprint(name, i), t)
		}},
		{"hand-over", 2, (&handover{lockers: pair, name: name + "shared"}).cycle},
	}
	var all []partJSON
	for i, p := range parts {
		r, err := b.runPart(ctx, p.workers, p.cycle, i, len(parts))
		if err != nil {
			return b.explainFailure(ctx, url, err)
		}
		r.Name = p.name
		all = append(all, r)
	}
	b.line.clear()
	return b.report(url, all)
}

// explainFailure returns the error for a benchmark that could not go on.
func (b *benchCommand) explainFailure(ctx context.Context, url string, err error) error {
	if ctx.Err() != nil {
		return silentExit(exitSignal + int(syscall.SIGINT))
	}
	if left, ok := backend.Grace(err); ok {
		return failf(exitUnavailable, "%s: %s", url, withheldText(left))
	}
	if _, ok := errors.AsType[*snib.Error](err); ok {
		return err // it names the store
	}
	return fmt.Errorf("%s: %w", url, err)
}

// runPart runs cycle in each worker until the time is over. The first error ends it. The end of
// the time does not cut off a cycle: a request that is given up may leave a lease in the store.
func (b *benchCommand) runPart(
	ctx context.Context, workers int, cycle func(context.Context, int, *histogram) error, i, parts int,
) (partJSON, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timed, cancel := context.WithTimeout(ctx, b.partDuration.value)
	defer cancel()
	all := make([]histogram, workers)
	var wg sync.WaitGroup
	began := time.Now()
	for worker := range workers {
		wg.Go(func() {
			for timed.Err() == nil {
				if err := cycle(ctx, worker, &all[worker]); err != nil {
					stop(err)
				}
			}
		})
	}
	b.drawProgress(timed, began, i, parts)
	wg.Wait()
	took := time.Since(began)
	if ctx.Err() != nil {
		return partJSON{}, context.Cause(ctx)
	}
	var sum histogram
	for i := range all {
		sum.add(&all[i])
	}
	return sum.result(workers, took), nil
}

// drawProgress draws a progress bar until ctx is done.
func (b *benchCommand) drawProgress(ctx context.Context, began time.Time, i, parts int) {
	tick := time.NewTicker(feedbackInterval / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			const width = 30
			share := (float64(i) + min(1, float64(time.Since(began))/float64(b.partDuration.value))) / float64(parts)
			done := int(share * width)
			b.line.show("[%s%s] %d %%", strings.Repeat("#", done), strings.Repeat(".", width-done), int(share*100))
		}
	}
}

// lockOnce acquires and releases a lock, and records how long that took.
func lockOnce(ctx context.Context, locker *snib.Locker, name string, t *histogram) error {
	began := time.Now()
	lock, err := locker.Acquire(ctx, name)
	if err != nil {
		return err
	}
	if err := lock.Release(); err != nil {
		return err
	}
	t.record(time.Since(began))
	return nil
}

// A handover measures hand-overs between two workers that want the same lock all the time.
type handover struct {
	lockers [2]*snib.Locker
	name    string

	last atomic.Pointer[releaseRecord] // nil before the first release
}

// A releaseRecord is who released a lock, and when.
type releaseRecord struct {
	worker int
	at     time.Time
}

// cycle acquires the lock, and records how long ago the other worker began to release it.
func (h *handover) cycle(ctx context.Context, worker int, t *histogram) error {
	lock, err := h.lockers[worker].Acquire(ctx, h.name)
	if err != nil {
		return err
	}
	if last := h.last.Load(); last != nil && last.worker != worker {
		t.record(time.Since(last.at))
	}
	h.last.Store(&releaseRecord{worker, time.Now()})
	return lock.Release()
}

// A histogram counts durations in buckets that are 2 % wide. Its size does not depend on their
// number.
type histogram struct {
	buckets [1600]int // up to e^(1600 × 0.02) ns, which is 22 hours
	count   int
	max     time.Duration
}

const bucketWidth = 0.02

func (t *histogram) record(d time.Duration) {
	bucket := int(math.Log(float64(max(d, 1))) / bucketWidth)
	t.buckets[min(bucket, len(t.buckets)-1)]++
	t.count++
	t.max = max(t.max, d)
}

func (t *histogram) add(other *histogram) {
	for i, n := range other.buckets {
		t.buckets[i] += n
	}
	t.count += other.count
	t.max = max(t.max, other.max)
}

// quantile returns, in seconds, the duration that a share q of all does not exceed. It
// returns 0 if there are none.
func (t *histogram) quantile(q float64) float64 {
	left := int(math.Ceil(q * float64(t.count)))
	for i, n := range t.buckets {
		if left -= n; left <= 0 && t.count > 0 {
			return min(math.Exp(float64(i+1)*bucketWidth), float64(t.max)) / float64(time.Second)
		}
	}
	return 0
}

func (t *histogram) result(workers int, took time.Duration) partJSON {
	return partJSON{
		Doers: workers, Cycles: t.count, Rate: float64(t.count) / took.Seconds(),
		P50: t.quantile(0.5), P90: t.quantile(0.9), P99: t.quantile(0.99), Most: t.max.Seconds(),
	}
}

func (b *benchCommand) report(url string, all []partJSON) error {
	return b.print(b.output.value, result{
		document: func() any { return benchJSON{"snib.bench/1", url, seconds(b.partDuration.value), all} },
		text:     func() string { return describeParts(all) },
	})
}

// describeParts returns the results as a table.
func describeParts(all []partJSON) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-10s  %6s  %9s  %9s  %9s  %9s  %9s\n", "PART", "DOERS", "CYCLES/S", "P50", "P90", "P99", "MAX")
	for _, r := range all {
		fmt.Fprintf(&text, "%-10s  %6d  %9.0f  %9s  %9s  %9s  %9s\n", r.Name, r.Doers, r.Rate, fine(r.P50), fine(r.P90), fine(r.P99), fine(r.Most))
	}
	return text.String()
}

// fine formats a duration in seconds with three digits.
func fine(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Nanosecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.String()
}
