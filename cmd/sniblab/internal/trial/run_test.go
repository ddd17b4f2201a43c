package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/judge"
	"github.com/sniblock/snib/cmd/sniblab/internal/pattern"
	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/cmd/sniblab/internal/target"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
)

// targetVar makes a process of the test program a target.
const targetVar = "SNIB_TEST_TARGET"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == targetVar && strings.Contains(os.Args[2], "/") {
		serveFile(os.Args[2])
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == targetVar {
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
	return []string{exe, targetVar, name}
}

// serveFile is a target that grants its lock, once: it makes a file, and ends if there is one.
func serveFile(name string) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_ = file.Close()
	_ = target.Serve(os.Stdin, os.Stdout, func(context.Context, target.Message) (target.Locker, error) {
		return mutex(make(chan struct{}, 1)).acquire, nil
	})
}

// A mutex is a lock of one process.
type mutex chan struct{}

func (m mutex) acquire(_ context.Context, wait time.Duration) (*target.Hold, error) {
	select {
	case m <- struct{}{}:
		return &target.Hold{Release: func(context.Context) error { <-m; return nil }}, nil
	case <-time.After(wait):
		return nil, target.ErrDenied
	}
}

// inMemory returns a target that is a mutex in the first trial, and ends in the second one.
func inMemory(t *testing.T) Target {
	return Target{Name: "mutex", Store: None, Together: true, Command: command(filepath.Join(t.TempDir(), "once"))}
}

// TestFailingTrial checks that the outcome has the seed of the trial that failed.
func TestFailingTrial(t *testing.T) {
	c, only := inMemory(t), []string{"stop-waiter"}
	outcomes, err := Run(t.Context(), Options{Targets: []Target{c}, Faults: only, Seed: 7, For: time.Hour}, observer(t))
	if err != nil {
		t.Fatal(err)
	}
	o := outcomes[0]
	if failed, ok := errors.AsType[*target.Error](o.Err); !ok || o.Trials != 1 {
		t.Fatalf("after %d trials: %v, %v, want that the target ends in the second trial", o.Trials, o.Err, failed)
	}
	if o.Seed != 8 {
		t.Errorf("the failing trial has seed %d, want 8", o.Seed)
	}
}

// TestInterrupt checks that a run that is interrupted has no outcomes.
func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel) // sooner or later in a trial
	outcomes, err := Run(ctx, Options{Targets: []Target{inMemory(t)}, Faults: []string{"stop-waiter"}, Seed: 7, For: time.Hour},
		func(o Outcome) { t.Errorf("done: %+v", o) })
	if !errors.Is(err, context.Canceled) || len(outcomes) > 0 {
		t.Errorf("outcomes %+v, %v, want none, and that the run was canceled", outcomes, err)
	}
}

// TestLateFailure checks that a verdict stands when a later trial fails, and that the errors of a
// target tell why it never got the lock.
func TestLateFailure(t *testing.T) {
	const program = `read start; echo '{"type":"ready"}'
while read line; do
	id=$(expr "$line" : '.*"id":\([0-9]*\)')
	echo "{\"type\":\"error\",\"id\":$id,\"error\":\"wrong password\"}"
done`
	prepared := 0
	c := Target{Name: "x", Store: None, Command: []string{"sh", "-c", program},
		Prepare: func(context.Context, string) error {
			if prepared++; prepared > 1 {
				return errors.New("no more")
			}
			return nil
		}}
	outcomes, err := Run(t.Context(), Options{Targets: []Target{c}, Faults: []string{"stop-waiter"}, Seed: 7, For: time.Hour}, observer(t))
	if err != nil {
		t.Fatal(err)
	}
	o := outcomes[0]
	if o.Err != nil || !o.Blocked || !slices.Equal(o.LastErrors(), []string{"wrong password"}) {
		t.Errorf("blocked %v (%v), errors %q, want blocked with the error that it sent", o.Blocked, o.Err, o.LastErrors())
	}
	if o.Late == nil || o.Late.Error() != "no more" || o.Seed != 7 {
		t.Errorf("seed %d, and then %v, want 7, and then the error", o.Seed, o.Late)
	}
}

func observer(t *testing.T) func(Outcome) {
	return func(o Outcome) {
		if o.Err != nil {
			t.Logf("%-18s %v", o.Target.Name, o.Err)
			return
		}
		t.Logf("%-18s %-40s %d trials, %v, %+v", o.Target.Name, o.Text(), o.Trials, o.Took.Round(time.Millisecond), o.Result)
	}
}

// TestControls checks that broken patterns get the verdicts that they must get. "make lab" has all.
func TestControls(t *testing.T) {
	names := []string{
		"get-set", "del-anothers", "no-token", "no-expiry", "for-update", "no-claim", "redlock-restart",
	}
	all := slices.DeleteFunc(Controls(command), func(c Target) bool { return !slices.Contains(names, c.Name) })
	for _, c := range all {
		for _, name := range c.Store.of().needs {
			programs[name](t)
		}
	}
	outcomes, err := Run(t.Context(), Options{Targets: all, Seed: uint64(time.Now().UnixNano())}, observer(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if !o.AsExpected() {
			t.Errorf("%s: verdict %s (%v), want %s", o.Target.Name, o.Verdict(), o.Err, o.Target.Want)
		}
		if !o.Rejected() {
			t.Errorf("%s is accepted", o.Target.Name)
		}
	}
}

// TestAccepted checks that the lab accepts a lock that is right as far as these faults go.
func TestAccepted(t *testing.T) {
	livetest.Binary(t, "redis", "redis-server")
	all := Controls(command)
	c := all[slices.IndexFunc(all, func(c Target) bool { return c.Name == "no-token" })]
	c.Defect, c.Faults = "", nil
	faults := []string{"pause", "kill", "crash", "slow-release", "delay", "cut", "store-pause", "store-restart"}
	outcomes, err := Run(t.Context(), Options{Targets: []Target{c}, Faults: faults, Seed: uint64(time.Now().UnixNano()),
		For: time.Second}, observer(t))
	if err != nil {
		t.Fatal(err)
	}
	if o := outcomes[0]; o.Err != nil || o.Rejected() && o.Verdict() != judge.Unfenced {
		t.Errorf("verdict %s (%v), seed %d: %+v", o.Text(), o.Err, o.Seed, o.Result)
	}
}

// TestFaultsFit checks that faults that a target can't have are an error, and unknown ones
// none of its own.
func TestFaultsFit(t *testing.T) {
	if !servers.HasCompiler() {
		t.Skip("there is no C compiler, so no clock can be set")
	}
	for _, tt := range []struct {
		c    Target
		only []string
		want int
	}{
		{Target{Store: Redis, LibcClock: true}, nil, len(Faults()) - 2}, // neither forget-quorum nor failover
		{Target{Store: Redis}, nil, len(Faults()) - 4},                  // nor the clock of clients
		{Target{Store: Redlock}, nil, len(Faults()) - 5},                // nor a disk that can be full
		{Target{Store: Redlock, OneWay: true}, []string{"cut", "delay", "kill"}, 2},
		{Target{Store: EtcdCluster}, nil, len(Faults()) - 7},
		{Target{Store: Sentinel}, []string{"failover", "cut"}, 1},
		{Target{Store: File}, nil, 5},
		{Target{Store: ZooKeeper}, []string{"store-forget", "disk-full"}, 1},
		{Target{Store: ZooKeepers}, []string{"store-forget"}, 0},
		{Target{Store: None, Together: true}, nil, 3},
		{Target{Store: None}, []string{"cut"}, 0},
		{Target{Store: Redis, Defect: "x", Faults: []string{"kill"}}, []string{"cut"}, 1},
	} {
		got, err := FaultsFor(tt.c, tt.only)
		if len(got) != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("FaultsFor(%+v, %v) = %d faults, %v, want %d", tt.c, tt.only, len(got), err, tt.want)
		}
	}
}

// TestZooKeeperDisk checks that a full disk reaches a server in Java, which ends, and that the lab
// restarts it.
func TestZooKeeperDisk(t *testing.T) {
	zktest.Java(t)
	if !servers.HasCompiler() {
		t.Skip("there is no C compiler, so no disk can be full")
	}
	s := openStore(t, Target{Store: ZooKeeper})
	server := s.Hit(nil)
	s.Shim.FillDisk(true)
	client, err := pattern.Open(t.Context(), pattern.Spec{Pattern: pattern.Unwatched, URLs: s.Addrs, Client: "A", TTL: TTL}, untraced{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, _ = client.Try(t.Context()) // the server can't write it down
	livetest.Await(t, "end of the server", func() error {
		if server.Up() {
			return errors.New("it still runs")
		}
		return nil
	})
	s.Shim.FillDisk(false)
	s.reviveAny()
	if err := server.Ready(); err != nil {
		t.Errorf("the server does not answer after its restart: %v", err)
	}
}

// TestControlsFor checks which patterns vouch for a run.
func TestControlsFor(t *testing.T) {
	all := []Target{{Name: "a", Store: Redis}, {Name: "b", Store: Postgres}, {Name: "c", Store: ZooKeeper}}
	for _, tt := range []struct {
		store StoreKind
		want  string
	}{{Redis, "a"}, {File, "a"}, {Postgres, "ab"}} {
		got := ""
		for _, c := range ControlsFor(all, []Target{{Store: tt.store}}) {
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
	outcomes, err := Run(t.Context(), Options{Targets: Controls(command)[:1]}, observer(t))
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

// TestControlsTell checks what people need to know about a control.
func TestControlsTell(t *testing.T) {
	for _, e := range controls() {
		if e.Title == "" || !strings.HasSuffix(e.Defect, ".") || !e.Want.Explain().Rejected || e.pattern == pattern.Snib {
			t.Errorf("%s: title, defect or verdict is missing", e.Name)
		}
		for _, name := range e.Faults {
			if !slices.ContainsFunc(Faults(), func(f servers.Fault) bool { return f.Name == name }) {
				t.Errorf("%s: there is no fault %s", e.Name, name)
			}
		}
	}
}
