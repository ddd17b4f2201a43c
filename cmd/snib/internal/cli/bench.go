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
	"github.com/sniblock/snib/driver"
)

// A benching is one "snib bench".
type benching struct {
	*app
	each     *duration
	parallel int
	output   *choice
	line     *progress
}

// A result is what one part of a benchmark has shown. Durations are seconds.
type result struct {
	Name   string  `json:"name"`
	Doers  int     `json:"doers"` // goroutines
	Cycles int     `json:"cycles"`
	Rate   float64 `json:"rate"` // cycles a second
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`
	Most   float64 `json:"max"`
}

func (a *app) benchCommand() *cobra.Command {
	b := &benching{app: a}
	cmd := &cobra.Command{
		Use:     "bench [URL]",
		Short:   "measure a store: cycles a second, hand-overs, percentiles",
		Example: benchExamples,
		Long:    benchNotes,
		Args:    atMostOne,

		ValidArgsFunction: completeURL,
	}
	f := cmd.Flags()
	f.SortFlags = false
	b.each = addDuration(cmd, "for", "", "how long each of the three parts takes", 3*time.Second, time.Millisecond)
	f.IntVar(&b.parallel, "parallel", 16, "how many goroutines lock at a time")
	b.output = addOutput(cmd, "table", "json")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if b.parallel < 1 || b.parallel > 10_000 {
			return usagef("--parallel %d: it is to be 1 to 10000", b.parallel)
		}
		if err := a.storeFrom(args); err != nil {
			return err
		}
		ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer cancel()
		return b.run(ctx)
	}
	return cmd
}

// run measures with two connections to the store, as two processes would have them.
func (b *benching) run(ctx context.Context) error {
	b.line = b.progress()
	defer b.line.clear()
	var lockers [2]*snib.Locker
	var url string
	for i := range lockers {
		s, err := b.open(true)
		if err != nil {
			return err
		}
		defer s.Close() //nolint:errcheck // every lock was released
		if s.Private() && i == 1 {
			lockers[1] = lockers[0] // or they would not meet
			break
		}
		if lockers[i], err = snib.New(s.Driver); err != nil {
			return err
		}
		url = s.URL
	}
	name := "snib-bench/" + rand.Text() + "/"
	if lock, err := lockers[0].TryAcquire(ctx, name+"first"); err != nil { // not a wait of 0 cycles if the store withholds locks
		return b.failed(ctx, url, err)
	} else if err := lock.Release(); err != nil {
		return b.failed(ctx, url, err)
	}
	parts := []struct {
		name  string
		doers int
		cycle func(ctx context.Context, doer int, t *times) error
	}{
		{"alone", 1, func(ctx context.Context, _ int, t *times) error { return lockOnce(ctx, lockers[0], name+"alone", t) }},
		{"own names", b.parallel, func(ctx context.Context, i int, t *times) error {
			return lockOnce(ctx, lockers[0], fmt.Sprint(name, i), t)
		}},
		{"hand-over", 2, (&handover{lockers: lockers, name: name + "shared"}).cycle},
	}
	var all []result
	for i, p := range parts {
		r, err := b.part(ctx, p.doers, p.cycle, i, len(parts))
		if err != nil {
			return b.failed(ctx, url, err)
		}
		r.Name = p.name
		all = append(all, r)
	}
	b.line.clear()
	return b.print(url, all)
}

// failed says why the benchmark could not go on.
func (b *benching) failed(ctx context.Context, url string, err error) error {
	if ctx.Err() != nil {
		return silent(exitSignal + int(syscall.SIGINT))
	}
	if left, ok := backend.Grace(err); ok {
		return fail(exitUnavailable, "%s: %s", url, withheld(left))
	}
	if _, ok := errors.AsType[*snib.Error](err); ok {
		return err // it says where
	}
	return fmt.Errorf("%s: %w", url, err)
}

// part has doers go through cycles until the time is over. The first error ends it.
func (b *benching) part(
	ctx context.Context, doers int, cycle func(context.Context, int, *times) error, i, parts int,
) (result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.each.value, errOver)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	all := make([]times, doers)
	var wg sync.WaitGroup
	began := time.Now()
	for d := range doers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := cycle(ctx, d, &all[d]); err != nil {
					stop(err) // it is the cause, unless the time was over before
				}
			}
		})
	}
	b.bar(ctx, began, i, parts)
	wg.Wait()
	took := time.Since(began)
	if cause := context.Cause(ctx); !errors.Is(cause, errOver) {
		return result{}, cause
	}
	var sum times
	for i := range all {
		sum.add(&all[i])
	}
	return sum.result(doers, took), nil
}

// errOver is why a part of the benchmark ends.
const errOver driver.Sentinel = "the time is over"

// bar draws how far we are, until ctx is done.
func (b *benching) bar(ctx context.Context, began time.Time, i, parts int) {
	tick := time.NewTicker(patience / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			const width = 30
			share := (float64(i) + min(1, float64(time.Since(began))/float64(b.each.value))) / float64(parts)
			done := int(share * width)
			b.line.show("[%s%s] %d %%", strings.Repeat("#", done), strings.Repeat(".", width-done), int(share*100))
		}
	}
}

// lockOnce takes and frees a lock, and notes how long that took.
func lockOnce(ctx context.Context, locker *snib.Locker, name string, t *times) error {
	began := time.Now()
	lock, err := locker.Acquire(ctx, name)
	if err != nil {
		return err
	}
	if err := lock.Release(); err != nil {
		return err
	}
	t.note(time.Since(began))
	return nil
}

// A handover has two want one lock all the time.
type handover struct {
	lockers [2]*snib.Locker
	name    string

	last atomic.Pointer[letGo] // nil if nobody had it
}

// A letGo is who released a lock, and when.
type letGo struct {
	doer int
	at   time.Time
}

// cycle takes the lock, and notes how long ago the other began to release it.
func (h *handover) cycle(ctx context.Context, doer int, t *times) error {
	lock, err := h.lockers[doer].Acquire(ctx, h.name)
	if err != nil {
		return err
	}
	if last := h.last.Load(); last != nil && last.doer != doer {
		t.note(time.Since(last.at))
	}
	h.last.Store(&letGo{doer, time.Now()})
	return lock.Release()
}

// Times counts durations in classes that are 2 % wide, whatever their number.
type times struct {
	classes [1600]int // up to e^(1600 × 0.02) ns, which is 22 hours
	count   int
	most    time.Duration
}

const classWidth = 0.02

func (t *times) note(d time.Duration) {
	class := int(math.Log(float64(max(d, 1))) / classWidth)
	t.classes[min(class, len(t.classes)-1)]++
	t.count++
	t.most = max(t.most, d)
}

func (t *times) add(other *times) {
	for i, n := range other.classes {
		t.classes[i] += n
	}
	t.count += other.count
	t.most = max(t.most, other.most)
}

// quantile is the duration that a share q of all does not exceed, in seconds; 0 if there are none.
func (t *times) quantile(q float64) float64 {
	left := int(math.Ceil(q * float64(t.count)))
	for i, n := range t.classes {
		if left -= n; left <= 0 && t.count > 0 {
			return min(math.Exp(float64(i+1)*classWidth), float64(t.most)) / float64(time.Second)
		}
	}
	return 0
}

func (t *times) result(doers int, took time.Duration) result {
	return result{
		Doers: doers, Cycles: t.count, Rate: float64(t.count) / took.Seconds(),
		P50: t.quantile(0.5), P90: t.quantile(0.9), P99: t.quantile(0.99), Most: t.most.Seconds(),
	}
}

func (b *benching) print(url string, all []result) error {
	if b.output.value == "json" {
		return b.printJSON(struct {
			Schema string   `json:"schema"`
			Store  string   `json:"store"`
			For    float64  `json:"for"`
			Parts  []result `json:"parts"`
		}{"snib.bench/1", url, seconds(b.each.value), all})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%-10s  %6s  %9s  %9s  %9s  %9s  %9s\n", "PART", "DOERS", "CYCLES/S", "P50", "P90", "P99", "MAX")
	for _, r := range all {
		fmt.Fprintf(&text, "%-10s  %6d  %9.0f  %9s  %9s  %9s  %9s\n", r.Name, r.Doers, r.Rate, fine(r.P50), fine(r.P90), fine(r.P99), fine(r.Most))
	}
	return b.printf("%s", text.String())
}

// fine is a duration with three digits.
func fine(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Nanosecond; unit < time.Hour; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.String()
}
