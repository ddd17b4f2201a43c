//go:build unix

package snib_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
)

// BenchmarkUncontended measures the core alone: one goroutine without contention.
func BenchmarkUncontended(b *testing.B) {
	l := open(b, memlock.New())
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		lock, err := l.Acquire(ctx, "a")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUncontendedDriver is BenchmarkUncontended without the core, for comparison.
func BenchmarkUncontendedDriver(b *testing.B) {
	d := memlock.New()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := d.Acquire(ctx, driver.Request{Name: "a", ID: "o", TTL: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkContended64 has 64 goroutines acquire one name. Almost all hand-overs are local.
func BenchmarkContended64(b *testing.B) {
	l := open(b, memlock.New())
	const goroutines = 64
	served := make([]int, goroutines)
	var next atomic.Int64
	ctx := b.Context()
	b.ReportAllocs()
	b.SetParallelism(goroutines / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		me := next.Add(1) - 1
		for pb.Next() {
			lock, err := l.Acquire(ctx, "a")
			if err != nil {
				b.Error(err)
				return
			}
			served[me]++
			if err := lock.Release(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	least, most := b.N, 0
	for _, n := range served[:next.Load()] {
		least, most = min(least, n), max(most, n)
	}
	b.ReportMetric(float64(most)/float64(max(least, 1)), "max/min")
}

// BenchmarkHeld100k measures the goroutines, memory and processor time of 100,000 holds, each of
// which is renewed every third of its TTL.
func BenchmarkHeld100k(b *testing.B) {
	const holds, ttl = 100_000, 9 * time.Second
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := open(b, memlock.New(), snib.TTL(ttl))
	locks := make([]*snib.Lock, holds)
	for i := range locks {
		lock, err := l.Acquire(context.Background(), fmt.Sprintf("held/%06d", i))
		if err != nil {
			b.Fatal(err)
		}
		locks[i] = lock
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	for b.Loop() {
		used, most := cpuTime(b), 0
		for range 10 {
			time.Sleep(ttl / 10) // each hold is renewed three times
			most = max(most, runtime.NumGoroutine())
		}
		b.ReportMetric(100*float64(cpuTime(b)-used)/float64(ttl), "%cpu")
		b.ReportMetric(float64(most), "goroutines")
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/holds, "B/hold")
	for _, lock := range locks {
		if isClosed(lock.Lost()) {
			b.Fatalf("%q was lost: %v", lock.Name(), context.Cause(lock.Context()))
		}
	}
}

// cpuTime returns the processor time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
