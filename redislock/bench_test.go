package redislock_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/sniblock/snib"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/redislock"
)

// BenchmarkCycleAOF acquires and releases through the core, in one goroutine and in many, each with
// a name of its own. The server saves each write, without and with DurableAOF, or nothing.
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
