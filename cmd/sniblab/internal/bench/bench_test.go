//go:build unix

package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

// turn is the number of the round: each begins with another library.
var turn = flag.Int("turn", 0, "begin with the library of this number, modulo the number of libraries")

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, takeTurns)) }

// A library is configured as its documentation says.
type library struct {
	name  string
	loads loads
	open  func(addrs []string) (*client, error)
}

// A client is a library that is connected to a store. Each process has one.
type client struct {
	caller  func() caller
	close   func()
	callers []caller // that exist
}

// A caller acquires and releases one lock at a time, for one goroutine. It keeps the lock in
// between, so that the benchmark allocates nothing for it.
type caller interface {
	acquire(ctx context.Context, name string) error
	release() error // returns an error if the lock was lost
}

// take returns the first n callers, and makes those that don't exist yet.
func (c *client) take(n int) []caller {
	for len(c.callers) < n {
		c.callers = append(c.callers, c.caller())
	}
	return c.callers[:n]
}

// loads is a set of loads.
type loads int

const (
	one      loads = 1 << iota // one goroutine
	many                       // 64 goroutines with names of their own
	herd                       // 512 of them
	contend                    // 64 goroutines on one name
	handOver                   // two processes on one name
	hold                       // 10,000 locks that are held

	usual = one | many | contend | handOver
)

// benchmark runs the loads of each library on a store.
func benchmark(b *testing.B, s *store, libraries []library) {
	for i := range libraries {
		l := &libraries[(i+*turn)%len(libraries)]
		b.Run("lib="+l.name, func(b *testing.B) {
			c, err := l.open(s.addrs)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(c.close)
			run := func(load loads, name string, f func(b *testing.B)) {
				if l.loads&load != 0 {
					b.Run(name, f)
				}
			}
			own := func(i int) string { return fmt.Sprint("bench/", l.name, "/", i) }
			shared := func(int) string { return "bench/" + l.name + "/shared" }
			run(one, "1-goroutine", func(b *testing.B) { cycles(b, s, c.take(1), own) })
			run(many, "64-goroutines", func(b *testing.B) { cycles(b, s, c.take(64), own) })
			run(herd, "512-goroutines", func(b *testing.B) { cycles(b, s, c.take(512), own) })
			run(contend, "64-on-one-name", func(b *testing.B) { cycles(b, s, c.take(64), shared) })
			run(handOver, "hand-over", func(b *testing.B) { handOvers(b, s, l.name) })
			run(hold, "10000-holds", func(b *testing.B) { holds(b, s, c) })
		})
	}
}

// cycles acquires and releases b.N times, with all callers at once. A first cycle of each is not
// measured: it may open a connection or insert a row.
func cycles(b *testing.B, s *store, callers []caller, name func(i int) string) {
	each(b, callers, func(i int, c caller) error { return cycle(c, name(i)) })
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	before := cpuTime()
	s.measure(b, func() {
		each(b, callers, func(i int, c caller) error {
			name := name(i)
			for left.Add(-1) >= 0 {
				if err := cycle(c, name); err != nil {
					return err
				}
			}
			return nil
		})
	})
	perOp(b, float64(cpuTime()-before), clientCPU)
}

// cycle takes a lock and releases it.
func cycle(c caller, name string) error {
	if err := acquire(c, name); err != nil {
		return err
	}
	return c.release()
}

// acquire repeats an acquisition that fails: some libraries limit their attempts, but who calls
// still wants the lock.
func acquire(c caller, name string) (err error) {
	for began := time.Now(); time.Since(began) < 3*livetest.Patience; time.Sleep(time.Millisecond) {
		if err = c.acquire(context.Background(), name); err == nil {
			return nil
		}
	}
	return err
}

// each calls do for each caller at once.
func each(b *testing.B, callers []caller, do func(i int, c caller) error) {
	var all sync.WaitGroup
	for i, c := range callers {
		all.Go(func() {
			if err := do(i, c); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// holds holds 10,000 locks. An operation is ten seconds of that, in which each is renewed once.
// With -short, it is a few locks for a moment.
func holds(b *testing.B, s *store, c *client) {
	n, period := 10_000, 10*time.Second
	if testing.Short() {
		n, period = 100, 100*time.Millisecond
	}
	const parallel = 16
	callers := c.take(n)
	share := func(do func(i int) error) {
		each(b, callers[:parallel], func(first int, _ caller) (err error) {
			for i := first; i < n && err == nil; i += parallel {
				err = do(i)
			}
			return err
		})
	}
	share(func(i int) error { return acquire(callers[i], fmt.Sprint("bench/hold/", i)) })
	before := cpuTime()
	s.measure(b, func() { time.Sleep(time.Duration(b.N) * period) })
	perOp(b, float64(cpuTime()-before), clientCPU)
	share(func(i int) error { return callers[i].release() })
}

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are valid
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// snibClient returns a client of snib with default options.
func snibClient(d driver.Driver, err error) (*client, error) {
	if err != nil {
		return nil, err
	}
	locker, err := snib.New(d)
	if err != nil {
		return nil, err
	}
	return &client{
		caller: func() caller { return &snibCaller{locker: locker} },
		close:  func() { _ = locker.Close() },
	}, nil
}

type snibCaller struct {
	locker *snib.Locker
	lock   *snib.Lock
}

func (c *snibCaller) acquire(ctx context.Context, name string) (err error) {
	c.lock, err = c.locker.Acquire(ctx, name)
	return err
}

func (c *snibCaller) release() error { return c.lock.Release() }

// TestBenchmarks runs each benchmark for one operation. Their process is another one, because a
// benchmark that fails says so only there.
func TestBenchmarks(t *testing.T) {
	for name, libraries := range allLibraries() {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(os.Args[0], "-test.run=^$", "-test.bench=^Benchmark"+name+"$", "-test.benchtime=1x", "-test.short").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "--- SKIP") {
				t.Skipf("%s", out)
			}
			for _, l := range libraries {
				if !strings.Contains(string(out), "/lib="+l.name+"/") {
					t.Errorf("there is no figure of %s:\n%s", l.name, out)
				}
			}
		})
	}
}
