//go:build linux

package nemesis

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/history"
	"github.com/sniblock/snib/internal/livetest"
)

// "make nemesis" sets these flags.
var (
	totalTime    = flag.Duration("time", 0, "how long all set-ups together take, about; 0 runs some of them for 12 s")
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
	if *totalTime == 0 {
		each = 12 * time.Second
	}
	dir, err := os.MkdirTemp("", "snib-nemesis-") //nolint:usetesting // the logs of a failure are kept
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("-seed %d, %v for each set-up", first, each)
	t.Run("setups", func(t *testing.T) {
		for _, s := range run {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t, filepath.Join(dir, s.name), first, each)
			})
		}
	})
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
func (s setup) run(t *testing.T, dir string, seed uint64, long time.Duration) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w := s.newWorld(t, dir, seed)
	if *onlyFaults != "" {
		w.keepFaults(strings.Split(*onlyFaults, ","))
	}
	w.run(workers, long, s.bound(), s.leftoverBound())
	info := w.admin.Info()
	rules, report := s.rules(info), t.Logf
	rules.Bound += w.slack()
	if w.Store.Kind == "served" { // a service says what is wrong with its store
		rules.Idle, report = idleBound+w.slack(), t.Errorf
	}
	r := history.Check(w.events(), rules)
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
		report("odd error, %d times: %s", r.Odd[text], text)
	}
	t.Logf("%s: %d acquired, %d lost, %d killed; faults %v; violations that are excused: %d",
		s.name, r.Acquired, r.Lost, r.Killed, r.Faults, len(r.Violations)-len(violations))
	if enough := (long - w.slack()).Seconds(); float64(r.Acquired) < enough {
		t.Errorf("%d acquisitions in %v: there is not much that could go wrong", r.Acquired, long)
	}
}
