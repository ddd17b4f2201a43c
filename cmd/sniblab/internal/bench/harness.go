package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/sniblock/snib/internal/livetest"
)

// A scenario answers a question with one table for each of its variants.
type scenario struct {
	name     string
	id       string                  // the number that it has in older results, such as "S1"; may be empty
	about    string                  // what is run, and what it measures: one sentence
	start    func(testing.TB) *store // starts the store of all peers that have none of their own
	peers    []peer
	variants []variant
	columns  []column // the peers are ranked by the first one
}

// A variant is a load and its conditions, which all peers run one after the other.
type variant struct {
	name    string
	procs   int
	load    load
	window  time.Duration
	columns []column      // instead of the scenario's
	extra   []peer        // in addition to the scenario's
	stall   time.Duration // the server stops for this long after a quarter of the window
	fresh   bool          // each run has servers of its own
	killed  int           // the number of servers to kill before the window
	hung    int           // the number of other servers to hang throughout the window
	aims    []aim

	delay time.Duration // of the network, each way; see harness.delays
}

// A run is the run of one peer in one repetition of a variant.
type run struct {
	peer         string
	rep          int
	store        string // the kind and the version
	window       time.Duration
	err          error
	procs        []*result
	server       counters // in the window
	foreignCores float64  // cores that other processes used; NaN if unknown
	waits        *hdrhistogram.Histogram
	chain        chain
	keysLeft     int64 // on the servers after the run; only if they are fresh
}

// A harness starts stores and runs workers on them.
type harness struct {
	delays    []time.Duration // of the network, to run each variant with
	reps      int
	window    time.Duration // overrides each variant's own unless it is 0
	warmup    time.Duration
	until     time.Time // no run begins later; there is no limit if it is zero
	profiles  string    // directory for CPU profiles; no profiles if it is empty
	spawn     func(context.Context) (*process, error)
	progress  io.Writer
	plan      plan
	clock     clock
	runNumber int // makes the keys of each run unique

	// Of the current scenario:
	t       testing.TB                 // starts servers
	stores  map[string]*store          // that run, by peer; "" is for peers without one of their own
	proxies map[string]*livetest.Proxy // by the address of the server
}

// A process is a worker process as the harness sees it.
type process struct {
	in  *json.Encoder
	out *json.Decoder
	// Closes the input, and returns the error of the process; may be called again.
	wait func() error
}

// workerEnv is the environment variable that makes the program a worker, whatever its value.
const workerEnv = "SNIB_BENCH_WORKER"

// spawnSelf starts another process of this program as a worker.
func spawnSelf(ctx context.Context) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), workerEnv+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{in: json.NewEncoder(in), out: json.NewDecoder(out), wait: sync.OnceValue(func() error {
		_ = in.Close()
		switch err := cmd.Wait(); {
		case err == nil, errors.Is(context.Cause(ctx), context.Canceled):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return fmt.Errorf("worker: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
	})}, nil
}

// runScenario measures all variants of a scenario, with each delay, and writes the results. It
// skips a scenario whose servers are not installed.
func (h *harness) runScenario(ctx context.Context, scenario *scenario, s *sink) error {
	err := livetest.Outside(func(t testing.TB) error {
		h.use(t)
		var tables []*table
		for _, v := range scenario.variants {
			for _, v.delay = range h.delays {
				t, err := h.measure(ctx, scenario, v)
				if err != nil {
					return err
				}
				tables = append(tables, t)
			}
		}
		return s.put(tables)
	})
	if missing := (*livetest.MissingError)(nil); errors.As(err, &missing) {
		fmt.Fprintf(h.progress, "%s is skipped: %v\n", scenario.name, err)
		s.skipped = append(s.skipped, fmt.Sprintf("%s: %v", scenario.name, err))
		return nil
	}
	return err
}

// use makes the harness start servers that end with t.
func (h *harness) use(t testing.TB) {
	h.t, h.stores, h.proxies = t, map[string]*store{}, map[string]*livetest.Proxy{}
}

// peersOf returns the peers that take part in a variant.
func (s *scenario) peersOf(v *variant) []peer {
	return slices.DeleteFunc(slices.Concat(s.peers, v.extra), func(p peer) bool { return p.local && v.delay > 0 })
}

// measure runs all peers that take part in a variant. Within a repetition they run one after
// the other, and each repetition starts with a different one, so that a busy moment of the
// machine does not always affect the same peer.
func (h *harness) measure(ctx context.Context, s *scenario, v variant) (*table, error) {
	t := &table{scenario: s, variant: &v, peers: s.peersOf(&v)}
	for rep := range h.reps {
		for i := range t.peers {
			p := &t.peers[(i+rep)%len(t.peers)]
			r := &run{peer: p.name, rep: rep, err: errLimit}
			if h.until.IsZero() || time.Now().Before(h.until) {
				r = h.run(ctx, s, &v, p, rep)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			outcome := fmt.Sprint(r.err)
			if r.err == nil {
				outcome = formatFigure(t.columns()[0].of(r)) + " " + t.columns()[0].title
			}
			fmt.Fprintf(h.progress, "%s %s, %s, %d of %d: %s: %s\n", h.plan.next(h.timeOf(&v)), s.name, v.title(), rep+1, h.reps, p.name, outcome)
			t.runs = append(t.runs, r)
		}
	}
	return t, nil
}

var errLimit = errors.New("not run, because the limit of time was reached")

// extraRunTime is how much longer than its window a run may take.
const extraRunTime = 2 * time.Minute

// run runs the variant once with one peer.
func (h *harness) run(ctx context.Context, s *scenario, v *variant, p *peer, rep int) *run {
	r := &run{peer: p.name, rep: rep, window: cmp.Or(h.window, v.window)}
	ctx, cancel := context.WithTimeoutCause(ctx, r.window+extraRunTime, errors.New("it did not end"))
	defer cancel()
	h.runNumber++
	st, release := h.storeOf(s, v, p)
	defer release()
	r.store = st.about
	if p.start == nil && !v.fresh {
		if r.err = st.empty(ctx); r.err != nil {
			return r
		}
	}
	j := job{load: v.load, Scenario: s.name, Peer: p.name, Addrs: h.through(st, v.delay), Window: r.window, Warmup: h.warmup}
	j.Goroutines = cmp.Or(p.goroutines, j.Goroutines)
	if v.load.Locks > 0 {
		j.Warmup = max(j.Warmup, v.load.TTL/3) // time for one renewal of each lock
	}
	procs, err := h.startWorkers(ctx, v, j, rep)
	if r.err = err; err == nil {
		r.err = h.observe(ctx, v, r, procs, st)
	}
	if r.err != nil {
		cancel() // otherwise the other processes would wait for their start
	}
	for _, proc := range procs {
		r.err = errors.Join(r.err, proc.wait())
	}
	if r.err == nil && v.fresh {
		r.keysLeft, r.err = st.without(v.killed).countKeysLeft(ctx)
	}
	if r.err == nil {
		r.aggregate()
	}
	return r
}

// startWorkers starts the processes of a run, and gives each its job.
func (h *harness) startWorkers(ctx context.Context, v *variant, j job, rep int) (procs []*process, err error) {
	for i := range v.procs {
		j.Prefix = fmt.Sprintf("bench/%s/%d/", j.Scenario, h.runNumber)
		if v.load.Keys > 0 {
			j.Prefix += fmt.Sprintf("%d/", i) // each process has its own keys
		}
		if h.profiles != "" && rep == 0 {
			name := fmt.Sprintf("%s %s %s %d.pprof", j.Scenario, v.title(), j.Peer, i)
			j.Profile = filepath.Join(h.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(name))
		}
		proc, err := h.spawn(ctx)
		if err != nil {
			return procs, err
		}
		procs = append(procs, proc)
		if err := proc.send(j); err != nil {
			return procs, err
		}
	}
	return procs, nil
}

// through returns the addresses of a store, or those of proxies that deliver everything later if
// there is a delay.
func (h *harness) through(s *store, delay time.Duration) []string {
	if delay == 0 {
		return s.addrs
	}
	var addrs []string
	for _, addr := range s.addrs {
		p := h.proxies[addr]
		if p == nil {
			p = livetest.NewProxy(h.t, addr)
			h.proxies[addr] = p
		}
		p.Delay(delay, delay)
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// storeOf returns the store that a peer runs on, and starts it if it does not run. release stops it
// if it is for one run only.
func (h *harness) storeOf(s *scenario, v *variant, p *peer) (st *store, release func()) {
	if v.fresh {
		st := s.start(h.t)
		return st, st.stop
	}
	key, start := "", s.start
	if p.start != nil {
		key, start = p.name, p.start
	}
	if h.stores[key] == nil {
		h.stores[key] = start(h.t)
	}
	return h.stores[key], func() {}
}

// observe starts the window in all processes, measures the servers and the machine
// during it, and collects the results.
func (h *harness) observe(ctx context.Context, v *variant, r *run, procs []*process, st *store) error {
	for _, proc := range procs { // wait until all are warm
		if _, err := proc.receive(); err != nil {
			return err
		}
	}
	st.breakServers(v.killed, v.hung)
	whole := st.without(v.killed + v.hung)
	before, err := whole.counters(ctx)
	if err != nil {
		return err
	}
	busy, own := busyTime(), cpuTime()
	began := time.Now()
	begin := h.clock.now() + int64(10*time.Millisecond) // by then all processes know it
	for _, proc := range procs {
		if err := proc.send(start{Begin: begin}); err != nil {
			return err
		}
	}
	if v.stall > 0 {
		h.clock.sleepUntil(begin + int64(r.window/4))
		st.servers[0].Hang()
		time.Sleep(v.stall)
		st.servers[0].Resume()
	}
	h.clock.sleepUntil(begin + int64(r.window))
	after, err := whole.counters(ctx)
	if err != nil {
		return err
	}
	used, foreign, passed := cpuTime()-own, busyTime()-busy, time.Since(began)
	r.server = after.since(before, len(whole.servers))
	for _, p := range st.servers[v.killed : v.killed+v.hung] {
		p.Resume()
	}
	for _, proc := range procs {
		if err := proc.send(start{}); err != nil {
			return err
		}
	}
	for _, proc := range procs {
		res, err := proc.receive()
		if err != nil {
			return err
		}
		r.procs = append(r.procs, res)
		used += res.CPU
	}
	foreign -= (used + r.server.CPU).Seconds()
	r.foreignCores = foreign / passed.Seconds()
	return nil
}

func (p *process) send(what any) error {
	if err := p.in.Encode(what); err != nil {
		return cmp.Or(p.wait(), fmt.Errorf("worker: %w", err))
	}
	return nil
}

// receive returns the next reply of a worker.
func (p *process) receive() (*result, error) {
	var r reply
	if err := p.out.Decode(&r); err != nil {
		return nil, cmp.Or(p.wait(), fmt.Errorf("worker: %w", err))
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Result, nil
}

// busyTime returns how many seconds all cores of the machine together have not been idle, up
// to a constant, or NaN if unknown. It is computed from the idle time, which the kernel
// measures; it only samples the other times.
func busyTime() float64 {
	text, _ := os.ReadFile("/proc/stat")
	var skipped, idle, wait float64
	if _, err := fmt.Sscanf(string(text), "cpu %g %g %g %g %g", &skipped, &skipped, &skipped, &idle, &wait); err != nil {
		return math.NaN()
	}
	cores := bytes.Count(text, []byte("\ncpu"))
	// The unit of /proc/stat is always 1/100 s.
	return float64(cores)*float64(monotonic())/1e9 - (idle+wait)/100
}

// aggregate combines the results of the processes.
func (r *run) aggregate() {
	r.waits = newHistogram()
	var holds [][]hold
	for _, p := range r.procs {
		if p.Waits != nil {
			r.waits.Merge(hdrhistogram.Import(p.Waits))
		}
		holds = append(holds, p.Holds)
	}
	r.chain = linkHolds(holds)
}

// A chain describes the holds of one lock in all processes, in the order of their grants.
type chain struct {
	handOvers, crossed int // crossed counts those to another process
	overlaps           int // grants before all earlier holds had ended
	// Of crossed hand-overs, sorted: from the call of Release to the return of the
	// other process's Acquire.
	gaps       []int64
	fromReturn []int64 // the same, but from the return of Release, which may come later
	idle       int64   // the sum of all gaps
}

func linkHolds(procs [][]hold) chain {
	type link struct {
		hold
		proc int
	}
	var links []link
	for i, holds := range procs {
		for _, h := range holds {
			links = append(links, link{h, i})
		}
	}
	slices.SortFunc(links, func(a, b link) int { return cmp.Compare(a.Got, b.Got) })
	var c chain
	var free int64 // when all holds so far had ended
	for i := 1; i < len(links); i++ {
		from, to := links[i-1], links[i]
		c.handOvers++
		free = max(free, from.Left)
		if to.Got < free {
			c.overlaps++
		}
		gap := to.Got - from.Left
		c.idle += gap
		if from.proc != to.proc {
			c.crossed++
			c.gaps = append(c.gaps, gap)
			c.fromReturn = append(c.fromReturn, to.Got-from.Released)
		}
	}
	slices.Sort(c.gaps)
	slices.Sort(c.fromReturn)
	return c
}
