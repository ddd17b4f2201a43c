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
	name          string
	variants      []variant
	columns       []column // the peers are ranked by the first one
	lowerIsBetter bool     // a lower figure in the first column is better
	ratio         bool     // adds a column with the ratio to the best peer

	// server starts a server other than Redis, for snib and the peers that name the
	// scenario. It may be nil.
	server func(testing.TB) (addr string, p *livetest.Process)
}

// A variant is a load and its conditions, which all peers run one after the other.
type variant struct {
	name   string
	procs  int
	load   load
	window time.Duration
	stall  time.Duration // the server stops for this long after a quarter of the window
	// The number of independent servers to start for each run, instead of the common one.
	nodes   int
	killed  int // the number of nodes to kill before the window
	hung    int // the number of other nodes to hang throughout the window
	targets []target

	delay time.Duration // of the network, each way; see harness.delays
}

// A run is the run of one peer in one repetition of a variant.
type run struct {
	peer         string
	rep          int
	window       time.Duration
	err          error
	procs        []*result
	server       counters // in the window
	foreignCores float64  // cores that other processes used; NaN if unknown
	waits        *hdrhistogram.Histogram
	chain        chain
	keysLeft     int64 // on the nodes after the run
}

// A harness runs workers against its server.
type harness struct {
	t            testing.TB // starts servers
	server       *server
	peers        []peer
	delays       []time.Duration // of the network, to run each variant with
	reps         int
	window       time.Duration // overrides each variant's own unless it is 0
	warmup       time.Duration
	profiles     string // directory for CPU profiles; no profiles if it is empty
	spawn        func(context.Context) (*process, error)
	progress     io.Writer
	clock        clock
	runNumber    int               // makes the keys of each run unique
	scenarioAddr string            // address of the current scenario's own server, or ""
	scenarioPID  int               // process of that server, or 0
	peerAddrs    map[string]string // addresses of the peers' own servers that run
	proxies      map[string]*livetest.Proxy
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

// measure runs all peers that take part in a variant. Within a repetition they run one after
// the other, and each repetition starts with a different one, so that a busy moment of the
// machine does not always affect the same peer.
func (h *harness) measure(ctx context.Context, s *scenario, v *variant) (*table, error) {
	t := &table{scenario: s, variant: v}
	for _, p := range h.peers {
		if p.in(s.name) && (v.delay == 0 || p.start == nil) { // what has a server of its own may have no network
			t.peers = append(t.peers, p)
		}
	}
	h.scenarioAddr, h.scenarioPID = "", 0
	if s.server != nil {
		addr, p := s.server(h.t)
		h.scenarioAddr, h.scenarioPID = addr, p.PID()
		defer p.Kill()
	}
	for rep := range h.reps {
		for i := range t.peers {
			p := &t.peers[(i+rep)%len(t.peers)]
			r := h.run(ctx, s, v, p, rep)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			outcome := fmt.Sprint(r.err)
			if r.err == nil {
				outcome = formatFigure(s.columns[0].of(r)) + " " + s.columns[0].title
			}
			fmt.Fprintf(h.progress, "%s, %s, %d of %d: %s: %s\n", s.name, v.name, rep+1, h.reps, p.name, outcome)
			t.runs = append(t.runs, r)
		}
	}
	return t, nil
}

// extraRunTime is how much longer than its window a run may take.
const extraRunTime = 2 * time.Minute

// run runs the variant once with one peer.
func (h *harness) run(ctx context.Context, s *scenario, v *variant, p *peer, rep int) *run {
	r := &run{peer: p.name, rep: rep, window: v.window}
	if h.window > 0 {
		r.window = h.window
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.window+extraRunTime, errors.New("it did not end"))
	defer cancel()
	h.runNumber++
	servers := []*server{h.server}
	if v.nodes > 0 {
		servers = startServers(h.t, v.nodes)
		for _, s := range servers {
			defer s.stop()
		}
	}
	j := job{load: v.load, Peer: p.name, Addr: h.through(h.addrFor(p), v.delay), Window: r.window, Warmup: h.warmup}
	if v.nodes > 0 {
		for _, addr := range addresses(servers) {
			j.Nodes = append(j.Nodes, h.through(addr, v.delay))
		}
	}
	if v.load.Locks > 0 {
		j.Warmup = max(j.Warmup, v.load.TTL/3) // time for one renewal of each lock
	}
	if r.err = h.server.control.FlushAll(ctx).Err(); r.err != nil {
		return r
	}
	var procs []*process
	for i := range v.procs {
		j.Prefix = fmt.Sprintf("bench/%s/%d/", s.name, h.runNumber)
		if v.load.Keys > 0 {
			j.Prefix += fmt.Sprintf("%d/", i) // each process has its own keys
		}
		if h.profiles != "" && rep == 0 {
			name := fmt.Sprintf("%s %s %s %d.pprof", s.name, v.name, p.name, i)
			j.Profile = filepath.Join(h.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(name))
		}
		proc, err := h.spawn(ctx)
		if err == nil {
			procs = append(procs, proc)
			err = proc.send(j)
		}
		r.err = errors.Join(r.err, err)
	}
	if r.err == nil {
		r.err = h.observe(ctx, v, r, procs, servers)
	}
	if r.err != nil {
		cancel() // otherwise the other processes would wait for their start
	}
	for _, proc := range procs {
		r.err = errors.Join(r.err, proc.wait())
	}
	if r.err == nil && v.nodes > 0 {
		r.keysLeft, r.err = countKeysLeft(ctx, servers[v.killed:])
	}
	if r.err == nil {
		r.aggregate()
	}
	return r
}

// through returns the address of a proxy that delivers everything later, if there is a delay.
func (h *harness) through(addr string, delay time.Duration) string {
	if delay == 0 {
		return addr
	}
	scheme, host := "", addr
	if i := strings.Index(addr, "://"); i >= 0 {
		scheme, host = addr[:i+3], addr[i+3:]
	}
	p := h.proxies[host]
	if p == nil {
		p = livetest.NewProxy(h.t, host)
		h.proxies[host] = p
	}
	p.Delay(delay, delay)
	return scheme + p.Addr()
}

// addrFor returns the address of the server that a peer runs on, and starts it if it is the peer's
// own.
func (h *harness) addrFor(p *peer) string {
	if p.start == nil {
		return cmp.Or(h.scenarioAddr, h.server.Addr())
	}
	if h.peerAddrs[p.name] == "" {
		if h.peerAddrs == nil {
			h.peerAddrs = map[string]string{}
		}
		h.peerAddrs[p.name] = p.start(h.t)
	}
	return h.peerAddrs[p.name]
}

// observe starts the window in all processes, measures the servers and the machine
// during it, and collects the results.
func (h *harness) observe(ctx context.Context, v *variant, r *run, procs []*process, servers []*server) error {
	for _, proc := range procs { // wait until all are warm
		if _, err := proc.receive(); err != nil {
			return err
		}
	}
	breakServers(servers, v.killed, v.hung)
	whole := servers[v.killed+v.hung:]
	before, err := sumCounters(ctx, whole)
	if err != nil {
		return err
	}
	busy, own, scenarioCPU := busyTime(), cpuTime(), h.scenarioCPU()
	began := time.Now()
	begin := h.clock.now() + int64(10*time.Millisecond) // by then all processes know it
	for _, proc := range procs {
		if err := proc.send(start{Begin: begin}); err != nil {
			return err
		}
	}
	if v.stall > 0 {
		h.clock.sleepUntil(begin + int64(r.window/4))
		h.server.Hang()
		time.Sleep(v.stall)
		h.server.Resume()
	}
	h.clock.sleepUntil(begin + int64(r.window))
	after, err := sumCounters(ctx, whole)
	if err != nil {
		return err
	}
	used, foreign, passed := cpuTime()-own, busyTime()-busy, time.Since(began)
	r.server = after.since(before)
	r.server.CPU += h.scenarioCPU() - scenarioCPU
	for _, s := range servers[v.killed : v.killed+v.hung] {
		s.Resume()
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

// scenarioCPU returns the processor time that the current scenario's own server has used, or 0 if
// there is none, or the system does not tell.
func (h *harness) scenarioCPU() time.Duration {
	if h.scenarioPID == 0 {
		return 0
	}
	return cpuTimeOf(h.scenarioPID)
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
