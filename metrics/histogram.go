package metrics

import (
	"math"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// A histogram is a Prometheus histogram with fixed buckets. The histogram of client_golang
// takes 1.7 times as long for an observation (71 instead of 42 ns, medians) to keep count, sum
// and buckets consistent within a scrape, which rates do not need.
type histogram struct {
	bounds  []float64
	buckets []atomic.Uint64 // one for each bound, and one for greater values
	sum     atomic.Uint64   // the bits of a float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	if v != 0 {
		h.addToSum(v)
	}
}

func (h *histogram) addToSum(v float64) {
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// add adds what another histogram with the same bounds has counted.
func (h *histogram) add(other *histogram) {
	for i := range h.buckets {
		h.buckets[i].Add(other.buckets[i].Load())
	}
	h.addToSum(math.Float64frombits(other.sum.Load()))
}

// count returns the number of observations.
func (h *histogram) count() (n uint64) {
	for i := range h.buckets {
		n += h.buckets[i].Load()
	}
	return n
}

// metric returns the current state of the histogram. Its count is the sum of its buckets.
func (h *histogram) metric(desc *prometheus.Desc, labels ...string) prometheus.Metric {
	count, buckets := uint64(0), make(map[float64]uint64, len(h.bounds))
	for i := range h.buckets {
		count += h.buckets[i].Load()
		if i < len(h.bounds) {
			buckets[h.bounds[i]] = count
		}
	}
	return prometheus.MustNewConstHistogram(desc, count, math.Float64frombits(h.sum.Load()), buckets, labels...)
}
