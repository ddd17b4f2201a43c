package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Stdin, os.Stdout, openTestPeer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each worker takes a second to end
	os.Exit(m.Run())
}

// badPeers returns broken peers that the harness must detect.
func badPeers() []peer {
	return []peer{
		{name: "open", open: func(setup) (*client, error) { // excludes nobody
			return &client{caller: func() caller { return openCaller{} }, close: func() {}}, nil
		}},
		{name: "stuck", open: func(setup) (*client, error) { // serves nobody after the warm-up
			return &client{caller: func() caller { return stuckCaller{} }, close: func() {}}, nil
		}},
		{name: "forgetful", open: func(setup) (*client, error) { // loses its locks
			return &client{caller: func() caller { return new(forgetfulCaller) }, close: func() {}}, nil
		}},
		{name: "crash", open: func(setup) (*client, error) { panic("as told") }},
	}
}

type openCaller struct{}

func (openCaller) acquire(context.Context, string) error { return nil }
func (openCaller) release() error                        { return nil }

type stuckCaller struct{ openCaller }

func (stuckCaller) acquire(ctx context.Context, key string) error {
	if strings.Contains(key, "/first") || strings.Contains(key, "/warm/") {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

type forgetfulCaller struct{ key string }

func (c *forgetfulCaller) acquire(_ context.Context, key string) error {
	c.key = key
	return nil
}

var errForgotten = errors.New("it was lost")

func (c *forgetfulCaller) release() error {
	if strings.HasSuffix(c.key, "/first") {
		return nil
	}
	return errForgotten
}

// newHarness returns a harness for short runs. Its workers run in this process, so that the race
// detector covers them.
func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{
		reps: 1, window: 60 * time.Millisecond, warmup: 20 * time.Millisecond, delays: []time.Duration{0},
		spawn: spawnHere, progress: io.Discard, clock: newClock(),
	}
	h.use(t)
	return h
}

// openTestPeer opens a peer of the scenarios, or a broken one.
func openTestPeer(j *job) (*client, error) {
	for _, p := range badPeers() {
		if p.name == j.Peer {
			return p.open(setup{addrs: j.Addrs, ttl: j.TTL})
		}
	}
	return openPeer(scenarios())(j)
}

// spawnHere starts a worker in this process.
func spawnHere(ctx context.Context) (*process, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	died := make(chan error, 1)
	go func() {
		err := work(inR, outW, openTestPeer)
		inR.Close()
		outW.Close()
		died <- err
	}()
	hangUp := func() {
		inW.Close()
		outR.Close()
	}
	context.AfterFunc(ctx, hangUp)
	return &process{in: json.NewEncoder(inW), out: json.NewDecoder(outR), wait: sync.OnceValue(func() error {
		hangUp()
		if err := <-died; !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	})}, nil
}

// testTTL is long enough for a busy machine.
const testTTL = 1500 * time.Millisecond

// peerNamed returns a peer of a scenario, or a broken one.
func peerNamed(t *testing.T, s scenario, name string) *peer {
	t.Helper()
	for _, p := range append(s.allPeers(), badPeers()...) {
		if p.name == name {
			return &p
		}
	}
	t.Fatalf("there is no peer %q", name)
	return nil
}

// TestScenarios runs each peer in each of its scenarios for a short time, and
// checks that the counts are consistent.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			v := s.variants[len(s.variants)-1]
			v.load.TTL = testTTL
			v.load.Goroutines = min(v.load.Goroutines, 32)
			v.load.Locks = min(v.load.Locks, 200)
			v.procs = min(v.procs, 3)
			if v.stall > 0 {
				h.window = 250 * time.Millisecond
			}
			tab, err := h.measure(t.Context(), &s, v)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range tab.runs {
				// The machine is too busy: retry with a longer TTL and window.
				if r.err == nil && (r.lost().N > 0 || v.load.Locks == 0 && r.cycles() == 0) {
					patient := v
					patient.load.TTL = 10 * testTTL
					h.window = 2 * time.Second
					r = h.run(t.Context(), &s, &patient, &tab.peers[i], 0)
				}
				t.Run(r.peer, func(t *testing.T) { checkCounts(t, &v, r, &tab.peers[i]) })
			}
			for _, row := range tab.rows() {
				if got, want := len(row), len(tab.rows()[0]); got != want {
					t.Errorf("a row of %d cells under a head of %d: %q", got, want, row)
				}
			}
			// Everything can be written and saved.
			for _, format := range []string{"text", "markdown", "json"} {
				out := sink{w: io.Discard, format: format, dir: t.TempDir()}
				if err := errors.Join(out.put([]*table{tab}), out.end()); err != nil {
					t.Errorf("write as %s: %v", format, err)
				}
			}
		})
	}
}

// checkCounts checks that the counts of a run are consistent.
func checkCounts(t *testing.T, v *variant, r *run, p *peer) {
	if r.err != nil {
		t.Fatal(r.err)
	}
	if got := len(r.procs); got != v.procs {
		t.Errorf("results of %d processes, want %d", got, v.procs)
	}
	if got := overlaps().of(r); got != 0 {
		t.Errorf("%v overlaps, want 0", got)
	}
	if got := r.lost(); got.N > 0 {
		t.Errorf("%d locks were lost: %s", got.N, got.Any)
	}
	if v.load.Locks > 0 {
		if got := r.server.Keys; got < float64(v.load.Locks) {
			t.Errorf("%v keys for %d locks", got, v.load.Locks)
		}
		return
	}
	served, holds := 0, 0
	for _, n := range r.served() {
		served += n
	}
	for _, p := range r.procs {
		holds += len(p.Holds)
	}
	if got := int(r.waits.TotalCount()); got != served {
		t.Errorf("%d latencies of %d acquisitions", got, served)
	}
	if v.load.Hold > 0 && holds != served {
		t.Errorf("%d holds of %d acquisitions", holds, served)
	}
	// rueidislock loses wake-ups, on a busy machine even from the start.
	if served == 0 && !strings.HasPrefix(r.peer, "rueidislock") {
		t.Error("nobody was served")
	}
	// A killed server is not asked, and a store may have none.
	if got := r.server.Commands; p.local && got > 0 || !p.local && served > 0 && got == 0 {
		t.Errorf("the servers executed %v commands for %d acquisitions", got, served)
	}
	if got := r.server.CPU; !p.local && served > 0 && got <= 0 {
		t.Errorf("the servers used %v of processor time for %d acquisitions", got, served)
	}
}

// TestOverlaps checks that overlaps within a process and between processes are
// detected for a lock that excludes nobody.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	within := func(r *run) int { return r.procs[0].Overlaps }
	between := func(r *run) int { return r.chain.overlaps }
	tests := []struct {
		name  string
		procs int
		load  load
		check func(*run) int
	}{
		{"Within", 1, load{Goroutines: 4, Hold: time.Millisecond}, within},
		{"WithinByChain", 1, load{Goroutines: 4, Hold: time.Millisecond}, between},
		{"Between", 2, load{Goroutines: 1, Hold: time.Millisecond}, between},
	}
	h := newHarness(t)
	h.spawn = spawnSelf
	for _, tt := range tests {
		for name, want := range map[string]bool{"open": true, "bsm-redislock": false} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				s := oneName()
				r := h.run(t.Context(), &s, &variant{procs: tt.procs, load: tt.load}, peerNamed(t, s, name), 0)
				if r.err != nil {
					t.Fatal(r.err)
				}
				if got := tt.check(r); (got > 0) != want {
					t.Errorf("%d overlaps in %v acquisitions, want some: %v", got, r.cycles(), want)
				}
				if got := overlaps().of(r); (got > 0) != want {
					t.Errorf("the table shows %v overlaps in %v acquisitions, want some: %v", got, r.cycles(), want)
				}
			})
		}
	}
}

// TestCrossShare checks that a token in a list passes to the other process each
// time, because that one waits longer.
func TestCrossShare(t *testing.T) {
	h := newHarness(t)
	h.spawn, h.window = spawnSelf, 300*time.Millisecond
	s := handOver()
	v := s.variants[0]
	v.load.Hold = 10 * time.Millisecond // long enough for the other process to wait again
	var c chain
	for range 3 { // retry if the machine is so busy that it does not wait in time
		r := h.run(t.Context(), &s, &v, peerNamed(t, s, "blpop"), 0)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if c = r.chain; c.handOvers >= 10 && c.crossed == c.handOvers && c.overlaps == 0 {
			return
		}
	}
	t.Errorf("%d of %d hand-overs went to the other process, with %d overlaps; want all, at least 10, and none",
		c.crossed, c.handOvers, c.overlaps)
}

// TestStall checks that a server that stops makes everybody wait for as long.
func TestStall(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.window = 400 * time.Millisecond
	s := serverStall()
	v := s.variants[0]
	var got time.Duration
	for range 3 { // retry if the machine is so busy that the server stops too late
		r := h.run(t.Context(), &s, &v, peerNamed(t, s, "floor"), 0)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got = time.Duration(r.waits.Max()); got > v.stall*9/10 {
			return
		}
	}
	t.Errorf("the longest wait was %v, want at least the stall of %v", got, v.stall)
}

// TestCommands checks the count of the floor's commands, which are known: SET, and
// EVALSHA with a GET and a DEL inside.
func TestCommands(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.window = 200 * time.Millisecond
	s := uncontended()
	r := h.run(t.Context(), &s, &s.variants[0], peerNamed(t, s, "floor"), 0)
	if r.err != nil {
		t.Fatal(r.err)
	}
	// The operations that are under way at the beginning and the end of the window count in part.
	edge := 20 / r.cycles()
	for c, want := range map[*column]float64{ptr(commands()): 4, ptr(reads()): 2} {
		if got := c.of(r); math.Abs(got-want) > 0.05*want+edge {
			t.Errorf("%s = %.2f in %.0f operations, want about %v", c.title, got, r.cycles(), want)
		}
	}
	if r.server.CPU <= 0 || r.clientCPU() <= 0 {
		t.Errorf("processor time of the server = %v, of the client = %v, want some", r.server.CPU, r.clientCPU())
	}
}

func ptr[T any](x T) *T { return &x }

// TestTroubles checks that failures of a library are reported and do not stop the other runs.
func TestTroubles(t *testing.T) {
	t.Parallel()
	t.Run("Stuck", func(t *testing.T) {
		h := newHarness(t)
		h.window = 500 * time.Millisecond
		s := serverStall()
		r := h.run(t.Context(), &s, &variant{procs: 1, load: load{Goroutines: 3, Keys: 1}}, peerNamed(t, s, "stuck"), 0)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := len(r.procs[0].Unfinished); got != 3 {
			t.Errorf("%d goroutines waited at the end, want 3", got)
		}
		if got, want := longestWaiting().of(r), h.window.Seconds()*1e3; got < want/2 || got > want {
			t.Errorf("the longest waiting goroutine waited for %v ms, want about %v", got, want)
		}
	})
	t.Run("Forgetful", func(t *testing.T) {
		h := newHarness(t)
		s := heldLocks()
		r := h.run(t.Context(), &s, &variant{procs: 1, load: load{Locks: 5, TTL: time.Millisecond}}, peerNamed(t, s, "forgetful"), 0)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := r.lost(); got.N != 5 || got.Any != errForgotten.Error() {
			t.Errorf("lost %+v, want all 5, because of %q", got, errForgotten)
		}
	})
	t.Run("Crash", func(t *testing.T) {
		h := newHarness(t)
		h.spawn = spawnSelf
		s := uncontended()
		s.peers = []peer{*peerNamed(t, s, "crash"), *peerNamed(t, s, "open")}
		tab, err := h.measure(t.Context(), &s, s.variants[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := tab.runs[0].err; got == nil || !strings.Contains(got.Error(), "panic: as told") {
			t.Errorf("the run of a worker that crashed = %v, want its panic", got)
		}
		if got := tab.runs[1].err; got != nil {
			t.Errorf("the run after it = %v, want none", got)
		}
		var out bytes.Buffer
		tab.write(&out, "text")
		if got := out.String(); !strings.Contains(got, "crash failed in repetition 1") {
			t.Errorf("the table does not tell of the crash:\n%s", got)
		}
	})
}

// TestTurns checks that the peers run one after the other within a repetition, and that each
// repetition starts with a different one.
func TestTurns(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.window, h.warmup, h.reps = time.Millisecond, time.Millisecond, 3
	s := uncontended()
	s.peers = []peer{*peerNamed(t, s, "snib-memory"), *peerNamed(t, s, "floor"), *peerNamed(t, s, "open")}
	tab, err := h.measure(t.Context(), &s, s.variants[0])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range tab.runs {
		got = append(got, fmt.Sprintf("%d %s", r.rep, r.peer))
	}
	want := []string{
		"0 snib-memory", "0 floor", "0 open",
		"1 floor", "1 open", "1 snib-memory",
		"2 open", "2 snib-memory", "2 floor",
	}
	if !slices.Equal(got, want) {
		t.Errorf("runs %q, want %q", got, want)
	}
}

// TestProgram runs the whole program with real processes.
func TestProgram(t *testing.T) {
	t.Parallel()
	livetest.Binary(t, "redis", "redis-server")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := runProgram(t.Context(), args, &out, io.Discard)
		return out.String(), err
	}
	profiles := t.TempDir()
	text, err := run("-scenario", "uncontended", "-peers", "floor,snib-memory", "-window", "200ms", "-reps", "2", "-o", "json", "-cpuprofile", profiles)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var tab struct {
			Scenario string
			Runs     []struct {
				Peer    string
				Rep     int
				Figures map[string]float64
			}
			Aims []verdict
		}
		if err := json.Unmarshal([]byte(line), &tab); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if len(tab.Runs) != 4 || len(tab.Aims) == 0 {
			t.Errorf("%d runs and %d aims, want 4 and some: %s", len(tab.Runs), len(tab.Aims), line)
		}
		for _, r := range tab.Runs {
			if r.Figures[cyclesPerSecond] <= 0 {
				t.Errorf("%s made %v cycles/s in repetition %d", r.Peer, r.Figures[cyclesPerSecond], r.Rep)
			}
		}
	}
	if files, _ := os.ReadDir(profiles); len(files) != 4 { // of the first repetition
		t.Errorf("%d profiles, want 4", len(files))
	}
	for _, args := range [][]string{{"-scenario", "none"}, {"-peers", "nobody"}, {"-o", "yaml"}, {"-reps", "0"}, {"-variant", "none"}, {"-delay", "soon"}, {"uncontended"}} {
		if _, err := run(args...); err == nil {
			t.Errorf("bench %q = no error", args)
		}
	}
}
