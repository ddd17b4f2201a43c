//go:build linux

package sqlitelock

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
)

func BenchmarkAcquireRelease(b *testing.B) {
	d := open(b, newPath(b))
	for b.Loop() {
		release(b, acquire(b, d, request("owner")))
	}
}

// BenchmarkOneDriver has goroutines acquire different locks, so that they share transactions.
func BenchmarkOneDriver(b *testing.B) {
	d := open(b, newPath(b))
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		req := request("owner")
		req.Name = "lock " + strconv.FormatInt(driver.Now().Sub(driver.Instant{}).Nanoseconds(), 10)
		for pb.Next() {
			release(b, acquire(b, d, req))
		}
	})
}

// BenchmarkProcesses has four processes acquire and release locks, each its own, or
// all the same.
func BenchmarkProcesses(b *testing.B) {
	const procs = 4
	for _, kind := range []string{"own", "same"} {
		b.Run("lock="+kind, func(b *testing.B) {
			path := newPath(b)
			open(b, path)
			var all []*livetest.Child
			for i := range procs {
				req := request("process " + strconv.Itoa(i) + " round ")
				if kind == "own" {
					req.Name += strconv.Itoa(i)
				}
				all = append(all, livetest.StartChild(b,
					job{Role: "cycle", Req: req, Path: path, Rounds: (b.N + procs - 1) / procs}))
			}
			for _, p := range all {
				p.Expect("ready")
			}
			b.ResetTimer()
			for _, p := range all {
				p.End()
			}
			for _, p := range all {
				p.Expect("done")
			}
			b.StopTimer()
			for _, p := range all {
				p.Wait()
			}
		})
	}
}

// BenchmarkHandOver measures from a release to the grant in another driver.
func BenchmarkHandOver(b *testing.B) {
	path := newPath(b)
	one, two := open(b, path), open(b, path)
	var total time.Duration
	for b.Loop() {
		l := acquire(b, one, request("one"))
		got := livetest.Waiting(b, two, request("two"))
		began := time.Now()
		release(b, l)
		l = got.Get(b)
		total += time.Since(began)
		release(b, l)
	}
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/hand-over")
}

func BenchmarkRenew(b *testing.B) {
	const held = 100_000
	d := open(b, newPath(b))
	due := make([]driver.Lease, 0, held)
	jobs, leases := make(chan int), make(chan driver.Lease)
	for range 128 {
		go func() {
			for i := range jobs {
				req := request("owner")
				req.Name, req.TTL = "lock "+strconv.Itoa(i), time.Hour
				l, err := d.Acquire(context.Background(), req)
				if err != nil {
					b.Error(err)
				}
				leases <- l
			}
		}()
	}
	go func() {
		defer close(jobs)
		for i := range held {
			jobs <- i
		}
	}()
	began := time.Now()
	for range held {
		due = append(due, <-leases)
	}
	b.Logf("%d leases taken in %v", held, time.Since(began))
	for b.Loop() {
		for _, r := range d.Renew(context.Background(), due) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}
