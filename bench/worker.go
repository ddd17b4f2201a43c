package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A load is what each worker process of a run does.
type load struct {
	Goroutines int
	Keys       int           // of each goroutine; 0: all goroutines of all processes share one
	Hold       time.Duration // how long each lock is held
	Locks      int           // hold so many until the end, instead of acquiring and releasing
	TTL        time.Duration // 0: the library's default
}

// A job is what the harness tells a worker first. The worker answers with a reply when it is warm, and gets a start. After
// the window it gets another one, when the harness has looked at the server, and cleans up and replies with its result.
type job struct {
	load
	Peer           string
	Addr           string   // of the Redis server
	Nodes          []string `json:",omitempty"` // of the servers that are to be used together, instead of that one
	Prefix         string   // of all keys
	Warmup, Window time.Duration
	Profile        string // file for a CPU profile; none if it is empty
}

// A start tells the beginning of the window, on the clock that the processes share.
type start struct{ Begin int64 }

type reply struct {
	Error  string  `json:",omitempty"`
	Result *result `json:",omitempty"`
}

// A result is what a worker saw in the window.
type result struct {
	Served     []int                  // acquisitions of each goroutine
	Waits      *hdrhistogram.Snapshot // from the first attempt to success, in ns
	Holds      []hold                 `json:",omitempty"` // if load.Hold is set
	Unfinished []time.Duration        `json:",omitempty"` // who waited when the window ended, and how long until then
	Overlaps   int                    // two goroutines of this process were inside at once
	GaveUp     errorCount             // attempts to acquire that failed, and were repeated
	Lost       errorCount             // holds that had ended before their release, or were not released

	CPU            time.Duration
	Mallocs, Bytes uint64        // allocated
	Took           time.Duration // to get all of load.Locks
	Hung           int           // of those, the acquisitions that had to be asked again after hangs
	Goroutines     int           // the most that were seen, without the harness's own: while holding them, or with nodes
	RSS            int64         // at the end of the window
}

// errorCount counts errors, and keeps one.
type errorCount struct {
	N   int
	Any string `json:",omitempty"`
}

func (c *errorCount) note(err error) {
	if c.N++; c.Any == "" {
		c.Any = err.Error()
	}
}

func (c *errorCount) add(other errorCount) {
	c.N += other.N
	c.Any = cmp.Or(c.Any, other.Any)
}

// A hold is told by the clock that the processes share.
type hold struct {
	Got      int64 // Acquire returned
	Left     int64 // Release was called
	Released int64 // Release returned
}

// A worker is the process that is measured.
type worker struct {
	job
	in     *json.Decoder
	out    *json.Encoder
	clock  clock
	client *client
	inside atomic.Bool // a goroutine holds the key that all share
}

// lowest, highest and digits are those of the histograms, in ns: exact to 1 %.
const lowest, highest, digits = 1, int64(100 * time.Second), 2

// work does the job that comes from in.
func work(in io.Reader, out io.Writer, peers []peer) error {
	w := worker{in: json.NewDecoder(in), out: json.NewEncoder(out), clock: newClock()}
	if err := w.in.Decode(&w.job); err != nil {
		return err
	}
	res, err := w.run(peers)
	if err != nil {
		return w.out.Encode(reply{Error: err.Error()})
	}
	return w.out.Encode(reply{Result: res})
}

// ready says that the worker is warm, and returns when the window begins.
func (w *worker) ready() (begin int64, err error) {
	runtime.GC()
	if err := w.out.Encode(reply{}); err != nil {
		return 0, err
	}
	return w.told()
}

// told waits for what the harness says next.
func (w *worker) told() (int64, error) {
	var s start
	err := w.in.Decode(&s)
	return s.Begin, err
}

// run warms up and measures.
func (w *worker) run(peers []peer) (*result, error) {
	own := runtime.NumGoroutine()
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == w.Peer })
	if i < 0 {
		return nil, fmt.Errorf("there is no peer %q", w.Peer)
	}
	var err error
	if w.client, err = peers[i].open(setup{addr: w.Addr, nodes: w.Nodes, ttl: w.TTL}); err != nil {
		return nil, err
	}
	defer w.client.close()
	if err := w.first(); err != nil {
		return nil, err
	}
	if w.Locks > 0 {
		return w.keep(own)
	}
	w.drive("warm/", w.clock.now(), w.Warmup, func(run func()) { run() })
	begin, err := w.ready()
	if err != nil {
		return nil, err
	}
	res := new(result)
	lanes := w.drive("", begin, w.Window, func(run func()) { err = w.measure(res, w.watched(res, own, run)) })
	waits := newHistogram()
	for _, l := range lanes {
		res.Served = append(res.Served, l.served)
		waits.Merge(l.waits)
		res.Holds = append(res.Holds, l.holds...)
		res.Overlaps += l.overlaps
		res.GaveUp.add(l.gaveUp)
		res.Lost.add(l.lost)
		if l.unfinished > 0 {
			res.Unfinished = append(res.Unfinished, l.unfinished)
		}
	}
	res.Waits = waits.Export()
	return res, err
}

// first takes a lock once, because a library may hold back on a server that is younger than its TTL, as one that has just
// lost its memory would be. snib does. It tries more than once, because others may hang.
func (w *worker) first() error {
	c := w.client.caller()
	var err error
	for began := time.Now(); time.Since(began) < limit/2; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*hangs)
		if err = c.acquire(ctx, w.Prefix+"first"); err == nil {
			err = c.release()
		}
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("the first lock was not to be had: %w", err)
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(lowest, highest, digits) }

// measure calls run, notes in res what this process uses meanwhile, and waits until the harness has looked at the server.
func (w *worker) measure(res *result, run func()) (err error) {
	var before, after runtime.MemStats
	var profile bytes.Buffer
	if w.Profile != "" {
		err = pprof.StartCPUProfile(&profile)
	}
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	run()
	res.CPU = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	res.Mallocs, res.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	res.RSS = rss()
	if w.Profile != "" && err == nil {
		pprof.StopCPUProfile()
		err = os.WriteFile(w.Profile, profile.Bytes(), 0o666)
	}
	_, gone := w.told()
	return errors.Join(err, gone)
}

// watched is run while the most goroutines are noted, without the harness's own: those that are the load, and this one.
func (w *worker) watched(res *result, own int, run func()) func() {
	if len(w.Nodes) == 0 {
		return run
	}
	return func() {
		over := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for tick := time.Tick(20 * time.Millisecond); ; {
				select {
				case <-tick:
					res.Goroutines = max(res.Goroutines, runtime.NumGoroutine()-own-w.Goroutines-1)
				case <-over:
					return
				}
			}
		})
		run()
		close(over)
		watching.Wait()
	}
}

// A lane is one goroutine of the load.
type lane struct {
	caller     caller
	keys       []string
	waits      *hdrhistogram.Histogram
	served     int
	holds      []hold
	unfinished time.Duration
	overlaps   int
	gaveUp     errorCount
	lost       errorCount
	_          [64]byte // lanes that share a cache line would slow each other down
}

// drive has all goroutines acquire and release from begin on, for one window. Around gets what passes the time until the
// window is over.
func (w *worker) drive(prefix string, begin int64, window time.Duration, around func(run func())) []*lane {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := begin + int64(window)
	lanes := make([]*lane, w.Goroutines)
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range lanes {
		l := &lane{caller: w.client.caller(), keys: w.keys(prefix, i), waits: newHistogram()}
		if w.Hold > 0 {
			l.holds = make([]hold, 0, int(window/w.Hold)/w.Goroutines+1)
		}
		lanes[i] = l
		all.Go(func() {
			<-gate
			w.cycle(ctx, l, end)
		})
	}
	around(func() {
		w.clock.sleepUntil(begin)
		close(gate)
		w.clock.sleepUntil(end)
	})
	cancel()
	all.Wait()
	return lanes
}

// keys are the keys of a goroutine.
func (w *worker) keys(prefix string, lane int) []string {
	prefix = w.Prefix + prefix
	if w.Keys == 0 {
		return []string{prefix + "shared"}
	}
	keys := make([]string, w.Keys)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(lane) + "/" + strconv.Itoa(i)
	}
	return keys
}

// cycle acquires and releases until end.
func (w *worker) cycle(ctx context.Context, l *lane, end int64) {
	for n := 0; ; n++ {
		key := l.keys[n%len(l.keys)]
		began := w.clock.now()
		if began >= end {
			return
		}
		err := l.caller.acquire(ctx, key)
		got := w.clock.now()
		for err != nil && got < end { // a library's own limit on its attempts: the caller still wants the lock
			l.gaveUp.note(err)
			time.Sleep(time.Millisecond)
			err = l.caller.acquire(ctx, key)
			got = w.clock.now()
		}
		if got >= end {
			l.unfinished = time.Duration(end - began)
			if err == nil {
				_ = l.caller.release()
			}
			return
		}
		if w.Keys == 0 && !w.inside.CompareAndSwap(false, true) {
			l.overlaps++
		}
		l.served++
		_ = l.waits.RecordValue(min(got-began, highest)) // it fails only beyond highest
		if w.Hold > 0 {
			time.Sleep(w.Hold)
		}
		if w.Keys == 0 {
			w.inside.Store(false)
		}
		left := int64(0)
		if w.Hold > 0 {
			left = w.clock.now()
		}
		if err := l.caller.release(); err != nil && ctx.Err() == nil { // rueidislock's locks end with ctx
			l.lost.note(err)
		}
		if w.Hold > 0 {
			l.holds = append(l.holds, hold{Got: got, Left: left, Released: w.clock.now()})
		}
	}
}

// hands is how many goroutines take and release the locks that are kept, and renew them where the library does not.
const hands = 16

// hangs is how long the acquisition of a lock that nobody else wants may take before it is given up and asked again.
const hangs = time.Second

// keep takes load.Locks locks and holds them.
func (w *worker) keep(own int) (*result, error) {
	ctx, cancel := context.WithCancel(context.Background()) // of the holds, too, where a library's locks end with it
	defer cancel()
	res := new(result)
	callers := make([]caller, w.Locks)
	for i := range callers {
		callers[i] = w.client.caller()
	}
	var hung atomic.Int64
	began := time.Now()
	failed := inParallel(callers, func(i int, c caller) error {
		for range 10 {
			attempt, giveUp := context.WithCancel(ctx)
			timer := time.AfterFunc(hangs, giveUp)
			err := c.acquire(attempt, w.Prefix+strconv.Itoa(i))
			if timer.Stop() {
				return err // attempt goes on: it may be what the lock lives by
			}
			if err == nil {
				_ = c.release()
			}
			hung.Add(1)
		}
		return errors.New("it hangs again and again")
	})
	res.Took, res.Hung = time.Since(began), int(hung.Load())
	if failed.N > 0 {
		return nil, fmt.Errorf("%d of %d locks were not to be had: %s", failed.N, w.Locks, failed.Any)
	}

	renewing, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	if w.client.renew != nil {
		for share := range slices.Chunk(callers, (len(callers)+hands-1)/hands) {
			all.Go(func() {
				for tick := time.Tick(w.TTL / 3); renewing.Err() == nil; {
					select {
					case <-tick:
						_ = w.client.renew(renewing, share) // what was lost shows when it is released
					case <-renewing.Done():
					}
				}
			})
		}
	}
	time.Sleep(w.Warmup)
	begin, err := w.ready()
	if err != nil {
		return nil, err
	}
	err = w.measure(res, func() {
		const looks = 10
		w.clock.sleepUntil(begin)
		for i := range looks {
			w.clock.sleepUntil(begin + int64(w.Window)*int64(i+1)/looks)
			res.Goroutines = max(res.Goroutines, runtime.NumGoroutine()-own)
		}
	})
	stop()
	all.Wait()
	res.Lost = inParallel(callers, func(_ int, c caller) error { return c.release() })
	return res, err
}

// inParallel calls do for each caller, in a few goroutines.
func inParallel(callers []caller, do func(i int, c caller) error) (failed errorCount) {
	var next atomic.Int64
	var mu sync.Mutex // guards failed
	var all sync.WaitGroup
	for range hands {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(callers); i = int(next.Add(1)) - 1 {
				if err := do(i, callers[i]); err != nil {
					mu.Lock()
					failed.note(err)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}

// rss is how much memory this process has resident, or 0 where that can't be told.
func rss() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
