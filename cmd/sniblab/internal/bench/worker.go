package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// A load is the work of each worker process of a run.
type load struct {
	Goroutines int
	// Keys of each goroutine; 0: all goroutines of all processes share one key.
	Keys int
	Hold time.Duration // how long each lock is held
	Rest time.Duration // the mean of the random times between the holds of a goroutine
	// Hold this many locks until the end, instead of acquiring and releasing.
	Locks int
	TTL   time.Duration // 0: the library's default
}

// A job is the first message from the harness to a worker. The worker sends a reply when it is
// warm, and gets a start. After the window, when the harness has read the server's counters,
// the worker gets another start, cleans up, and sends a reply with its result.
type job struct {
	load
	Scenario, Peer string
	Addrs          []string // of the store, see setup
	Prefix         string   // of all keys
	Warmup, Window time.Duration
	Profile        string // file for a CPU profile; no profile if it is empty
}

// A start contains the beginning of the window, by the clock that the processes share.
type start struct{ Begin int64 }

type reply struct {
	Error  string  `json:",omitempty"`
	Result *result `json:",omitempty"`
}

// A result is what a worker measured in the window.
type result struct {
	Served []int                  // acquisitions of each goroutine
	Waits  *hdrhistogram.Snapshot // from the first attempt to success, in ns
	Holds  []hold                 `json:",omitempty"` // if load.Hold is set
	// How long each unfinished wait had lasted at the end of the window.
	Unfinished []time.Duration `json:",omitempty"`
	// How often two goroutines of this process held the lock at the same time.
	Overlaps int
	GaveUp   errorCount // failed calls of acquire, which were repeated
	// Holds that ended before their release, or were not released.
	Lost errorCount

	CPU            time.Duration
	Mallocs, Bytes uint64        // allocated
	Took           time.Duration // to get all of load.Locks
	Hung           int           // the acquisitions that were repeated after hangTimeout
	// Goroutines is the peak number, without the worker's own. It is measured only with Locks, or if
	// there are several servers.
	Goroutines int
	RSS        int64 // at the end of the window
	HeldBytes  int64 // of heap and stacks, for each of load.Locks
}

// An errorCount counts errors, and keeps the text of the first one.
type errorCount struct {
	N   int
	Any string `json:",omitempty"`
}

func (c *errorCount) record(err error) {
	if c.N++; c.Any == "" {
		c.Any = err.Error()
	}
}

func (c *errorCount) add(other errorCount) {
	c.N += other.N
	c.Any = cmp.Or(c.Any, other.Any)
}

// A hold contains the times of a hold, by the clock that the processes share.
type hold struct {
	Got      int64 // Acquire returned
	Left     int64 // Release was called
	Released int64 // Release returned
}

// A worker is the state of the process that is measured.
type worker struct {
	job
	in     *json.Decoder
	out    *json.Encoder
	clock  clock
	client *client
	inside atomic.Bool // a goroutine holds the shared key
}

// lowest, highest and digits are the parameters of the histograms, in ns. Values
// are exact to 1 %.
const lowest, highest, digits = 1, int64(100 * time.Second), 2

// work reads a job from in, does it, and writes its replies to out. open connects to the store as
// the job's peer.
func work(in io.Reader, out io.Writer, open func(*job) (*client, error)) error {
	w := worker{in: json.NewDecoder(in), out: json.NewEncoder(out), clock: newClock()}
	if err := w.in.Decode(&w.job); err != nil {
		return err
	}
	res, err := w.run(open)
	if err != nil {
		return w.out.Encode(reply{Error: err.Error()})
	}
	return w.out.Encode(reply{Result: res})
}

// ready reports that the worker is warm, and returns when the window begins.
func (w *worker) ready() (begin int64, err error) {
	runtime.GC()
	if err := w.out.Encode(reply{}); err != nil {
		return 0, err
	}
	return w.awaitStart()
}

// awaitStart waits for the next start from the harness.
func (w *worker) awaitStart() (int64, error) {
	var s start
	err := w.in.Decode(&s)
	return s.Begin, err
}

// run warms up and measures.
func (w *worker) run(open func(*job) (*client, error)) (*result, error) {
	ownGoroutines := runtime.NumGoroutine()
	var err error
	if w.client, err = open(&w.job); err != nil {
		return nil, err
	}
	defer w.client.close()
	if err := w.acquireFirst(); err != nil {
		return nil, err
	}
	if w.Locks > 0 {
		return w.holdLocks(ownGoroutines)
	}
	w.runLoad("warm/", w.clock.now(), w.Warmup, func(run func()) { run() })
	begin, err := w.ready()
	if err != nil {
		return nil, err
	}
	res := new(result)
	runners := w.runLoad("", begin, w.Window, func(run func()) { err = w.measure(res, w.trackGoroutines(res, ownGoroutines, run)) })
	waits := newHistogram()
	for _, l := range runners {
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

// acquireFirst acquires and releases a lock once, because a library may grant nothing on a
// server that is younger than its TTL, since that server may have lost its memory. snib does
// so. acquireFirst tries repeatedly, because other libraries may hang.
func (w *worker) acquireFirst() error {
	c := w.client.caller()
	var err error
	for began := time.Now(); time.Since(began) < extraRunTime/2; {
		ctx, cancel := context.WithTimeout(context.Background(), 5*hangTimeout)
		if err = c.acquire(ctx, w.Prefix+"first"); err == nil {
			err = c.release()
		}
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("the first lock could not be acquired: %w", err)
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(lowest, highest, digits) }

// measure calls run, stores in res what this process used during the call, and waits until
// the harness has read the server's counters.
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
	_, gone := w.awaitStart()
	return errors.Join(err, gone)
}

// trackGoroutines wraps run and stores the peak number of goroutines in res, without those of
// the load and of the worker itself. It returns run unchanged if there is only
// one server.
func (w *worker) trackGoroutines(res *result, ownGoroutines int, run func()) func() {
	if len(w.Addrs) < 2 {
		return run
	}
	return func() {
		over := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for tick := time.Tick(20 * time.Millisecond); ; {
				select {
				case <-tick:
					res.Goroutines = max(res.Goroutines, runtime.NumGoroutine()-ownGoroutines-w.Goroutines-1)
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

// A runner is one goroutine of the load.
type runner struct {
	caller     caller
	keys       []string
	waits      *hdrhistogram.Histogram
	served     int
	holds      []hold
	unfinished time.Duration
	overlaps   int
	gaveUp     errorCount
	lost       errorCount
	_          [64]byte // runners that share a cache line would slow each other down
}

// runLoad has all goroutines acquire and release from begin on, for one window. It calls around
// with a function that returns when the window is over.
func (w *worker) runLoad(prefix string, begin int64, window time.Duration, around func(run func())) []*runner {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	end := begin + int64(window)
	runners := make([]*runner, w.Goroutines)
	var all sync.WaitGroup
	startSignal := make(chan struct{})
	for i := range runners {
		l := &runner{caller: w.client.caller(), keys: w.keys(prefix, i), waits: newHistogram()}
		if w.Hold > 0 {
			l.holds = make([]hold, 0, int(window/w.Hold)/w.Goroutines+1)
		}
		runners[i] = l
		all.Go(func() {
			<-startSignal
			w.cycle(ctx, l, end)
		})
	}
	around(func() {
		w.clock.sleepUntil(begin)
		close(startSignal)
		w.clock.sleepUntil(end)
	})
	cancel()
	all.Wait()
	return runners
}

// keys returns the keys of a goroutine.
func (w *worker) keys(prefix string, index int) []string {
	prefix = w.Prefix + prefix
	if w.Keys == 0 {
		return []string{prefix + "shared"}
	}
	keys := make([]string, w.Keys)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(index) + "/" + strconv.Itoa(i)
	}
	return keys
}

// cycle acquires and releases until end.
func (w *worker) cycle(ctx context.Context, l *runner, end int64) {
	for n := 0; ; n++ {
		key := l.keys[n%len(l.keys)]
		began := w.clock.now()
		if began >= end {
			return
		}
		err := l.caller.acquire(ctx, key)
		got := w.clock.now()
		// The library limits its attempts, but the caller still wants the lock.
		for err != nil && got < end {
			l.gaveUp.record(err)
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
		_ = l.waits.RecordValue(min(got-began, highest)) // fails only beyond highest
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
		// The locks of rueidislock end with ctx.
		if err := l.caller.release(); err != nil && ctx.Err() == nil {
			l.lost.record(err)
		}
		if w.Hold > 0 {
			l.holds = append(l.holds, hold{Got: got, Left: left, Released: w.clock.now()})
		}
		if w.Rest > 0 {
			time.Sleep(rand.N(2 * w.Rest))
		}
	}
}

// parallelism is how many goroutines acquire and release the held locks, and renew
// them if the library does not.
const parallelism = 16

// hangTimeout is how long the acquisition of an uncontended lock may take before it
// is cancelled and repeated.
const hangTimeout = time.Second

// holdLocks acquires load.Locks locks and holds them.
func (w *worker) holdLocks(ownGoroutines int) (*result, error) {
	// Some libraries' holds end with this context.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	res := new(result)
	callers := make([]caller, w.Locks)
	for i := range callers {
		callers[i] = w.client.caller()
	}
	var hung atomic.Int64
	inUse := memoryInUse()
	began := time.Now()
	failed := inParallel(callers, func(i int, c caller) error {
		const tries = 10
		for range tries {
			attempt, giveUp := context.WithCancel(ctx)
			timer := time.AfterFunc(hangTimeout, giveUp)
			err := c.acquire(attempt, w.Prefix+strconv.Itoa(i))
			if timer.Stop() {
				if !w.client.boundToContext {
					giveUp() // it would count as memory of the lock
				}
				return err
			}
			if err == nil {
				_ = c.release()
			}
			hung.Add(1)
		}
		return fmt.Errorf("it hung %d times", tries)
	})
	res.Took, res.Hung = time.Since(began), int(hung.Load())
	if failed.N > 0 {
		return nil, fmt.Errorf("%d of %d locks could not be acquired: %s", failed.N, w.Locks, failed.Any)
	}

	renewing, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	if w.client.renew != nil {
		for share := range slices.Chunk(callers, (len(callers)+parallelism-1)/parallelism) {
			all.Go(func() {
				for tick := time.Tick(w.TTL / 3); renewing.Err() == nil; {
					select {
					case <-tick:
						_ = w.client.renew(renewing, share) // losses show at the release
					case <-renewing.Done():
					}
				}
			})
		}
	}
	time.Sleep(w.Warmup)
	res.HeldBytes = (memoryInUse() - inUse) / int64(w.Locks)
	begin, err := w.ready()
	if err != nil {
		return nil, err
	}
	err = w.measure(res, func() {
		const samples = 10
		w.clock.sleepUntil(begin)
		for i := range samples {
			w.clock.sleepUntil(begin + int64(w.Window)*int64(i+1)/samples)
			res.Goroutines = max(res.Goroutines, runtime.NumGoroutine()-ownGoroutines)
		}
	})
	stop()
	all.Wait()
	res.Lost = inParallel(callers, func(_ int, c caller) error { return c.release() })
	return res, err
}

// inParallel calls do for each caller, in parallelism goroutines.
func inParallel(callers []caller, do func(i int, c caller) error) (failed errorCount) {
	var next atomic.Int64
	var mu sync.Mutex // guards failed
	var all sync.WaitGroup
	for range parallelism {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(callers); i = int(next.Add(1)) - 1 {
				if err := do(i, callers[i]); err != nil {
					mu.Lock()
					failed.record(err)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}

// memoryInUse returns the bytes of live objects and of stacks.
func memoryInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// rss returns the resident memory of this process, or 0 if unknown.
func rss() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}
