package metriclabel

import "github.com/sniblock/snib"

// Waits returns the upper bounds of the buckets for waits, in seconds.
func Waits() []float64 { return []float64{.001, .005, .01, .05, .1, .5, 1, 5} }

// Holds returns the upper bounds of the buckets for holds, in seconds.
func Holds() []float64 { return []float64{.001, .01, .1, 1, 10, 60, 600, 3600} }

// Latencies returns the upper bounds of the buckets for requests to a store, in seconds.
func Latencies() []float64 {
	return []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5}
}

// Margins returns the upper bounds of the buckets for margins, as fractions of the lease.
func Margins() []float64 { return []float64{.05, .1, .2, 1.0 / 3, .4, .5, .6, .7} }

// Lengths returns the upper bounds of the buckets for queue lengths.
func Lengths() []float64 { return []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000} }

// Late reports whether a renewal was answered within the last third of its lease.
func Late(renewal *snib.RenewedEvent) bool { return renewal.Margin < renewal.TTL/3 }
