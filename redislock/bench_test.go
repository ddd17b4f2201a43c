package redislock_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// BenchmarkCycle acquires and releases through the core: in one goroutine, and in many, each
// with a name of its own.
func BenchmarkCycle(b *testing.B) {
	benchmarkCycle(b, open(b, at(used(b, redistest.Single(b, redistest.Password(password))).Addr())))
}

// BenchmarkCycleAOF is BenchmarkCycle on a server that saves each write, without and with
// DurableAOF, and on the same server without an append-only file.
func BenchmarkCycleAOF(b *testing.B) {
	for _, bb := range []struct {
		name, conf string
		opts       []redislock.Option
	}{
		{"none", "appendonly no", nil},
		{"always", "appendfsync always", nil},
		{"durable", "appendfsync always", []redislock.Option{redislock.DurableAOF()}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			benchmarkCycle(b, open(b, at(used(b, redistest.SingleAOF(b, bb.conf, redistest.Password(password))).Addr()),
				bb.opts...))
		})
	}
}

func benchmarkCycle(b *testing.B, d *redislock.Driver) {
	b.Helper()
	l, err := snib.New(d, snib.TTL(floor)) // as with the default of both, the TTL is not above the floor
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	cycle := func(b *testing.B, name string) {
		lock, err := l.Acquire(context.Background(), name)
		if err == nil {
			err = lock.Release()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			cycle(b, "bench")
		}
	})
	for _, n := range []int{64, 512} {
		b.Run("own/"+strconv.Itoa(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(n / 2)
			var serial atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				name := "bench-" + strconv.FormatInt(serial.Add(1), 10)
				for pb.Next() {
					cycle(b, name)
				}
			})
		})
	}
}

// BenchmarkHandOver passes a lock between two processes' drivers, without and with moments for
// foreign clients.
func BenchmarkHandOver(b *testing.B) {
	for _, every := range []time.Duration{0, time.Second, 10 * time.Second} {
		b.Run("yield="+every.String(), func(b *testing.B) { benchmarkHandOver(b, redislock.YieldToForeign(every)) })
	}
}

func benchmarkHandOver(b *testing.B, opt redislock.Option) {
	o := at(used(b, redistest.Single(b, redistest.Password(password))).Addr())
	d1, d2 := open(b, o, opt), open(b, o, opt)
	type handed struct {
		driver.Lease
		wanted <-chan struct{}
	}
	hand := func(d driver.Driver, id string) handed {
		req, wanted := livetest.WithWanted(driver.Request{Name: "bench", ID: id, TTL: 10 * time.Second})
		l, err := d.Acquire(context.Background(), req)
		if err != nil {
			b.Error(err)
		}
		return handed{l, wanted}
	}
	held, n := hand(d1, "owner"), 0
	for b.Loop() {
		n++
		next := make(chan handed)
		d1, d2 = d2, d1
		go func() { next <- hand(d1, "owner "+strconv.Itoa(n)) }()
		<-held.wanted
		if err := held.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
		held = <-next
	}
}
