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
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A scenario is a question, and one table for each of its variants.
type scenario struct {
	name     string
	variants []variant
	columns  []column // the first is what the peers are ranked by
	least    bool     // the least of the first column is the best, not the most
	ratio    bool     // there is a column with the ratio to the best peer

	// server starts one of another kind than Redis, for snib and those peers that name the scenario.
	server func(context.Context) (addr string, stop func(), err error)
}

// A variant is what all peers do in turn.
type variant struct {
	name    string
	procs   int
	load    load
	window  time.Duration
	stall   time.Duration // the server stops for so long, at a quarter of the window
	nodes   int           // so many servers that know nothing of each other, started for each run, instead of the one for all
	killed  int           // of the nodes, before the window
	hung    int           // of the others, throughout the window
	targets []target
}

// A run is one peer in one repetition of a variant.
type run struct {
	peer    string
	rep     int
	window  time.Duration
	err     error
	procs   []*result
	server  counters // what it did in the window
	foreign float64  // cores that others used; NaN where that can't be told
	waits   *hdrhistogram.Histogram
	chain   chain
	keys    int64 // left on the nodes when all was over
}

// A harness runs workers against its server.
type harness struct {
	server   *server
	peers    []peer
	reps     int
	window   time.Duration // instead of each variant's own, if it is not 0
	warmup   time.Duration
	profiles string // directory for CPU profiles; none if it is empty
	spawn    func(context.Context) (*process, error)
	progress io.Writer
	clock    clock
	serial   int    // of the runs, for their keys
	other    string // address of the present scenario's own server; "" without
}

// A process is a worker that listens for its job.
type process struct {
	in   *json.Encoder
	out  *json.Decoder
	wait func() error // hangs up, and returns what it died of; may be called again
}

// workerEnv, set to anything, makes the program a worker.
const workerEnv = "SNIB_BENCH_WORKER"

// spawnSelf starts this program once more, as a worker.
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

// measure runs all peers that take part in a variant. Within a repetition they take turns, and each repetition starts
// with another one, so that a busy moment of the machine does not always hit the same.
func (h *harness) measure(ctx context.Context, s *scenario, v *variant) (*table, error) {
	t := &table{scenario: s, variant: v}
	for _, p := range h.peers {
		if p.in(s.name) && (s.server == nil || p.name == snibRow || p.only != nil) {
			t.peers = append(t.peers, p)
		}
	}
	h.other = ""
	if s.server != nil {
		var stop func()
		var err error
		if h.other, stop, err = s.server(ctx); err != nil {
			return nil, err
		}
		defer stop()
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
				outcome = short(s.columns[0].of(r)) + " " + s.columns[0].title
			}
			fmt.Fprintf(h.progress, "%s, %s, %d of %d: %s: %s\n", s.name, v.name, rep+1, h.reps, p.name, outcome)
			t.runs = append(t.runs, r)
		}
	}
	return t, nil
}

// limit is how much longer than its window a run may take.
const limit = 2 * time.Minute

// run has one peer do the variant once.
func (h *harness) run(ctx context.Context, s *scenario, v *variant, p *peer, rep int) *run {
	r := &run{peer: p.name, rep: rep, window: v.window}
	if h.window > 0 {
		r.window = h.window
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.window+limit, errors.New("it did not end"))
	defer cancel()
	h.serial++
	servers := []*server{h.server}
	if v.nodes > 0 {
		if servers, r.err = startServers(ctx, v.nodes); r.err != nil {
			return r
		}
		defer stopServers(servers)
	}
	j := job{
		load: v.load, Peer: p.name, Addr: cmp.Or(h.other, h.server.addr), Window: r.window, Warmup: h.warmup,
		Prefix: fmt.Sprintf("bench/%s/%d/", s.name, h.serial),
	}
	if v.nodes > 0 {
		j.Nodes = addresses(servers)
	}
	if v.load.Locks > 0 {
		j.Warmup = max(j.Warmup, v.load.TTL/3) // each lock is renewed once
	}
	if r.err = h.server.control.FlushAll(ctx).Err(); r.err != nil {
		return r
	}
	var procs []*process
	for i := range v.procs {
		if h.profiles != "" && rep == 0 {
			name := fmt.Sprintf("%s %s %s %d.pprof", s.name, v.name, p.name, i)
			j.Profile = filepath.Join(h.profiles, strings.NewReplacer(" ", "-", ",", "").Replace(name))
		}
		proc, err := h.spawn(ctx)
		if err == nil {
			procs = append(procs, proc)
			err = proc.tell(j)
		}
		r.err = errors.Join(r.err, err)
	}
	if r.err == nil {
		r.err = h.observe(ctx, v, r, procs, servers)
	}
	if r.err != nil {
		cancel() // or the other processes wait for their start
	}
	for _, proc := range procs {
		r.err = errors.Join(r.err, proc.wait())
	}
	if r.err == nil && v.nodes > 0 {
		r.keys, r.err = leftOn(ctx, servers[v.killed:])
	}
	if r.err == nil {
		r.settle()
	}
	return r
}

// observe starts the window in all processes, and watches server and machine meanwhile.
func (h *harness) observe(ctx context.Context, v *variant, r *run, procs []*process, servers []*server) error {
	for _, proc := range procs { // until all are warm
		if _, err := proc.reply(); err != nil {
			return err
		}
	}
	if err := breakServers(servers, v.killed, v.hung); err != nil {
		return err
	}
	whole := servers[v.killed+v.hung:]
	before, err := countersOf(ctx, whole)
	if err != nil {
		return err
	}
	busy, own := busyTime(), cpuTime()
	began := time.Now()
	begin := h.clock.now() + int64(10*time.Millisecond) // until then all have heard of it
	for _, proc := range procs {
		if err := proc.tell(start{Begin: begin}); err != nil {
			return err
		}
	}
	if v.stall > 0 {
		h.clock.sleepUntil(begin + int64(r.window/4))
		if err := h.server.stall(v.stall); err != nil {
			return err
		}
	}
	h.clock.sleepUntil(begin + int64(r.window))
	after, err := countersOf(ctx, whole)
	if err != nil {
		return err
	}
	used, foreign, passed := cpuTime()-own, busyTime()-busy, time.Since(began)
	r.server = after.since(before)
	if err := mend(servers[v.killed : v.killed+v.hung]); err != nil {
		return err
	}
	for _, proc := range procs {
		if err := proc.tell(start{}); err != nil {
			return err
		}
	}
	for _, proc := range procs {
		res, err := proc.reply()
		if err != nil {
			return err
		}
		r.procs = append(r.procs, res)
		used += res.CPU
	}
	foreign -= (used + r.server.CPU).Seconds()
	r.foreign = foreign / passed.Seconds()
	return nil
}

func (p *process) tell(what any) error {
	if err := p.in.Encode(what); err != nil {
		return cmp.Or(p.wait(), fmt.Errorf("worker: %w", err))
	}
	return nil
}

// reply returns what a worker says next.
func (p *process) reply() (*result, error) {
	var r reply
	if err := p.out.Decode(&r); err != nil {
		return nil, cmp.Or(p.wait(), fmt.Errorf("worker: %w", err))
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	return r.Result, nil
}

// busyTime is for how many seconds all cores of the machine together have not been idle, up to a constant; NaN where that
// can't be told. It comes from the idle time, which the kernel measures: the other times it only samples.
func busyTime() float64 {
	text, _ := os.ReadFile("/proc/stat")
	var skipped, idle, wait float64
	if _, err := fmt.Sscanf(string(text), "cpu %g %g %g %g %g", &skipped, &skipped, &skipped, &idle, &wait); err != nil {
		return math.NaN()
	}
	cores := bytes.Count(text, []byte("\ncpu"))
	return float64(cores)*float64(monotonic())/1e9 - (idle+wait)/100 // always in 1/100 s there
}

// settle adds up what the processes saw.
func (r *run) settle() {
	r.waits = newHistogram()
	var holds [][]hold
	for _, p := range r.procs {
		if p.Waits != nil {
			r.waits.Merge(hdrhistogram.Import(p.Waits))
		}
		holds = append(holds, p.Holds)
	}
	r.chain = link(holds)
}

// A chain is the holds of one lock in all processes, in the order in which they got it.
type chain struct {
	handOvers, crossed int     // crossed: to another process
	overlaps           int     // somebody got it before it was released
	gaps               []int64 // of those that crossed, sorted: from the call of Release to the return of the other's Acquire
	fromReturn         []int64 // the same from the return of Release, which may come later
	idle               int64   // all gaps together
}

func link(procs [][]hold) chain {
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
	var free int64 // when all so far had left
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
