package arena

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
	"github.com/sniblock/snib/lab/judge"
	"github.com/sniblock/snib/lab/pattern"
)

// contestantVar makes a process of the test program a contestant.
const contestantVar = "SNIB_TEST_CONTESTANT"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == contestantVar {
		if err := ServePattern(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(name string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{exe, contestantVar, name}
}

func audience(t *testing.T) Audience {
	return Audience{
		Progress: func(float64, []string) {},
		Done: func(o Outcome) {
			if o.Err != nil {
				t.Logf("%-18s %v", o.Contestant.Name, o.Err)
				return
			}
			t.Logf("%-18s %-40s %d bouts, %v, %+v", o.Contestant.Name, o.Text(), o.Bouts, o.Took.Round(time.Millisecond), o.Result)
		},
	}
}

// TestMuseum checks that broken patterns are convicted of what they are guilty of.
func TestMuseum(t *testing.T) {
	checkConvicted(t, func(c Contestant) bool {
		return slices.Contains([]string{"get-set", "del-anothers", "no-token", "no-expiry", "row-client-clock", "no-claim", "redlock-restart", "zk-herd"}, c.Name)
	})
}

// TestWholeMuseum is TestMuseum for all patterns.
func TestWholeMuseum(t *testing.T) {
	livetest.Long(t) // a lock that is blocked for ever is watched for seconds
	checkConvicted(t, func(c Contestant) bool { return *only == "" || slices.Contains(strings.Split(*only, ","), c.Name) })
}

var only = flag.String("only", "", "patterns of TestWholeMuseum, with commas")

func checkConvicted(t *testing.T, of func(Contestant) bool) {
	t.Helper()
	all := slices.DeleteFunc(Museum(command), func(c Contestant) bool { return !of(c) })
	if slices.ContainsFunc(all, func(c Contestant) bool { return c.Store == Etcd }) {
		t.Setenv("PATH", filepath.Dir(etcdtest.Built(t))+":"+os.Getenv("PATH")) // the lab builds none
	}
	for _, c := range all {
		for _, name := range c.Store.of().needs {
			programs[name](t)
		}
	}
	outcomes, err := Run(t.Context(), Options{Contestants: all, Seed: uint64(time.Now().UnixNano())}, audience(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if !o.AsExpected() {
			t.Errorf("%s: verdict %s (%v), want %s", o.Contestant.Name, o.Verdict(), o.Err, o.Contestant.Want)
		}
		if !o.Convicted() {
			t.Errorf("%s is acquitted", o.Contestant.Name)
		}
	}
}

// TestAcquittal checks that a lock is acquitted that is right as far as these faults go.
func TestAcquittal(t *testing.T) {
	livetest.Binary(t, "redis", "redis-server")
	all := Museum(command)
	c := all[slices.IndexFunc(all, func(c Contestant) bool { return c.Name == "no-token" })]
	c.Guilt, c.Faults = "", nil
	faults := []string{"pause", "kill", "crash", "slow-release", "delay", "cut", "store-pause", "store-restart"}
	outcomes, err := Run(t.Context(), Options{Contestants: []Contestant{c}, Faults: faults, Seed: uint64(time.Now().UnixNano()), For: time.Second}, audience(t))
	if err != nil {
		t.Fatal(err)
	}
	if o := outcomes[0]; o.Err != nil || o.Convicted() && o.Verdict() != judge.Unfenced {
		t.Errorf("verdict %s (%v), seed %d: %+v", o.Text(), o.Err, o.Seed, o.Result)
	}
}

// TestFaultsFit checks that faults that a contestant can't have are an error, and unknown ones
// none of its own.
func TestFaultsFit(t *testing.T) {
	if !hasCompiler() {
		t.Skip("there is no C compiler, so no clock can be set")
	}
	for _, tt := range []struct {
		c    Contestant
		only []string
		want int
	}{
		{Contestant{Store: Redis, LibcClock: true}, nil, len(Faults()) - 2}, // neither forget-quorum nor failover
		{Contestant{Store: Redis}, nil, len(Faults()) - 4},                  // nor the clock of clients
		{Contestant{Store: Redlock}, nil, len(Faults()) - 5},                // nor a disk that can be full
		{Contestant{Store: Redlock, OneWay: true}, []string{"cut", "delay", "kill"}, 2},
		{Contestant{Store: EtcdCluster}, nil, len(Faults()) - 7},
		{Contestant{Store: Sentinel}, []string{"failover", "cut"}, 1},
		{Contestant{Store: File}, nil, 6},
		{Contestant{Store: ZooKeeper}, []string{"store-forget"}, 0},
		{Contestant{Store: None, Together: true}, nil, 3},
		{Contestant{Store: None}, []string{"cut"}, 0},
		{Contestant{Store: Redis, Guilt: "x", Faults: []string{"kill"}}, []string{"cut"}, 1},
	} {
		got, err := faultsFor(tt.c, tt.only)
		if len(got) != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("faultsFor(%+v, %v) = %d faults, %v, want %d", tt.c, tt.only, len(got), err, tt.want)
		}
	}
}

// TestControls checks which patterns vouch for a run.
func TestControls(t *testing.T) {
	museum := []Contestant{{Name: "a", Store: Redis}, {Name: "b", Store: Postgres}, {Name: "c", Store: ZooKeeper}}
	for _, tt := range []struct {
		store StoreKind
		want  string
	}{{Redis, "a"}, {File, "a"}, {Postgres, "ab"}} {
		got := ""
		for _, c := range Controls(museum, []Contestant{{Store: tt.store}}) {
			got += c.Name
		}
		if got != tt.want {
			t.Errorf("controls for %s = %s, want %s", tt.store, got, tt.want)
		}
	}
}

// TestMissingServer checks that the outcome says that a server is not installed.
func TestMissingServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	outcomes, err := Run(t.Context(), Options{Contestants: Museum(command)[:1]}, audience(t))
	if err != nil {
		t.Fatal(err)
	}
	if missing, ok := errors.AsType[*livetest.MissingError](outcomes[0].Err); !ok || missing.Server != "redis" {
		t.Errorf("the error is %v, want that Redis is missing", outcomes[0].Err)
	}
	for _, k := range []StoreKind{Redis, ZooKeeper} {
		if _, ok := errors.AsType[*livetest.MissingError](k.Missing()); !ok {
			t.Errorf("Missing of %s = %v", k, k.Missing())
		}
	}
	if err := File.Missing(); err != nil {
		t.Errorf("Missing of a file = %v", err)
	}
}

// TestExhibits checks what people need to know about a control.
func TestExhibits(t *testing.T) {
	for _, e := range exhibits() {
		if e.Title == "" || !strings.HasSuffix(e.Guilt, ".") || !e.Want.Explain().Convicted || e.pattern == pattern.Snib {
			t.Errorf("%s: title, guilt or verdict is missing", e.Name)
		}
		for _, name := range e.Faults {
			if !slices.ContainsFunc(Faults(), func(f FaultInfo) bool { return f.Name == name }) {
				t.Errorf("%s: there is no fault %s", e.Name, name)
			}
		}
	}
}
