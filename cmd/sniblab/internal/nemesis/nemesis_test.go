//go:build linux

package nemesis

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// "make nemesis" sets these flags.
var (
	totalTime    = flag.Duration("time", 0, "how long all set-ups together take, about; 0 runs some of them for a few seconds")
	seed         = flag.Uint64("seed", 0, "of the faults; 0 for a new one")
	chosenSetups = flag.String("setups", "", "names with commas; all by default")
	onlyFaults   = flag.String("faults", "", "names with commas; all by default")
)

// shortSetups are the set-ups of a run without -time.
const shortSetups = "sqlite,redis,redlock-brief,served-redis"

// workers is the number of worker processes.
const workers = 3

// overhead is roughly how long a set-up takes in addition to its faults.
const overhead = 15 * time.Second

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, Job.work)) }

// TestNemesis runs each set-up under its faults. It fails if something happens that
// the set-up does not allow.
func TestNemesis(t *testing.T) {
	run := selectedSetups(t)
	first := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	width := flag.Lookup("test.parallel").Value.(flag.Getter).Get().(int)
	rounds := (len(run) + width - 1) / width
	each := max(*totalTime/time.Duration(rounds)-overhead, 6*time.Second)
	dir, err := os.MkdirTemp("", "snib-nemesis-") //nolint:usetesting // the logs of a failure are kept
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("-seed %d, %v for each set-up", first, each)
	var mu sync.Mutex
	results := map[string]history.Report{}
	t.Run("setups", func(t *testing.T) {
		for _, s := range run {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				r := s.run(t, filepath.Join(dir, s.name), first, each)
				mu.Lock()
				defer mu.Unlock()
				results[s.name] = r
			})
		}
	})
	t.Logf("\n%s", table(run, results))
	if t.Failed() {
		t.Logf("the logs are in %s; once more: -seed %d", dir, first)
		return
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// selectedSetups returns the set-ups to run.
func selectedSetups(t *testing.T) []setup {
	names := *chosenSetups
	if names == "" && *totalTime == 0 {
		names = shortSetups
	}
	if names == "" {
		return setups
	}
	var run []setup
	for name := range strings.SplitSeq(names, ",") {
		run = append(run, setupNamed(t, name))
	}
	return run
}

// run runs a set-up and judges the run. It fails t for each violation that is not allowed.
func (s setup) run(t *testing.T, dir string, seed uint64, long time.Duration) history.Report {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, slack := s.newWorld(t, dir, seed), livetest.Slack(t)
	if *onlyFaults != "" {
		w.keepFaults(strings.Split(*onlyFaults, ","))
	}
	w.run(workers, long, s.bound(), s.leftoverBound())
	info := w.admin.Info()
	events := w.events()
	r := history.Check(events, s.rules(info))
	if w.Store.Kind == "served" {
		checkProgress(t, events, slack())
	}
	if s.has("break") && info.TellsLoss == s.untold {
		t.Errorf("TellsLoss is %v, and the set-up says the contrary", info.TellsLoss)
	}
	const maxPrinted = 30
	violations := slices.DeleteFunc(slices.Clone(r.Violations), func(v history.Violation) bool { return v.Allowed != "" })
	for _, v := range violations[:min(maxPrinted, len(violations))] {
		t.Error(v)
	}
	if len(violations) > maxPrinted {
		t.Errorf("%d violations in all", len(violations))
	}
	for _, text := range slices.Sorted(maps.Keys(r.Odd)) {
		t.Logf("odd error, %d times: %s", r.Odd[text], text)
	}
	if enough := int(long.Seconds()); r.Acquired < enough {
		t.Errorf("%d acquisitions in %v: there is not much that could go wrong", r.Acquired, long)
	}
	return r
}

// countOdd returns the number of odd errors.
func countOdd(r history.Report) int {
	n := 0
	for _, times := range r.Odd {
		n += times
	}
	return n
}

// table returns the results of the set-ups as a table.
func table(run []setup, results map[string]history.Report) string {
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "set-up\tacquired\tfaults\tlost\tkilled\todd errors\tviolations\tallowed by an assumption")
	for _, s := range run {
		r, ok := results[s.name]
		if !ok {
			fmt.Fprintf(out, "%s\tdid not finish\n", s.name)
			continue
		}
		faults, bad, allowed := summarize(r)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", s.name, r.Acquired, faults, r.Lost, r.Killed, countOdd(r), formatCounts(bad), formatCounts(allowed))
	}
	_ = out.Flush() // it writes to memory
	return text.String()
}
