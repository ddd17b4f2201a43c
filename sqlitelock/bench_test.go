//go:build linux

package sqlitelock

import (
	"testing"
	"time"

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
