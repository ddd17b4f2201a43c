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
