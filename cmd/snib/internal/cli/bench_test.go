package cli

import (
	"math"
	"testing"
	"time"
)

// TestQuantiles compares the histogram's quantiles with the exact values: they are within 2 %,
// and never above the maximum.
func TestQuantiles(t *testing.T) {
	for _, unit := range []time.Duration{100 * time.Nanosecond, time.Microsecond, time.Millisecond, 30 * time.Second} {
		var a, b, sum histogram
		for i := 1; i <= 1000; i++ { // the quantiles of 1 to 1000 are known
			if d := time.Duration(i) * unit; i%3 == 0 {
				a.record(d)
			} else {
				b.record(d)
			}
		}
		sum.add(&a)
		sum.add(&b)
		for _, q := range []float64{0.5, 0.9, 0.99, 1} {
			want := q * 1000 * unit.Seconds()
			if got := sum.quantile(q); math.Abs(got-want) > 0.021*want || got > 1000*unit.Seconds()*(1+1e-9) {
				t.Errorf("the %v quantile of 1 to 1000 times %v = %v s, want %v s", q, unit, got, want)
			}
		}
		if sum.count != 1000 || sum.max != 1000*unit {
			t.Errorf("of 1000 times %v: count %d, most %v", unit, sum.count, sum.max)
		}
	}
	var none histogram
	if got := none.quantile(0.5); got != 0 {
		t.Errorf("a quantile of nothing = %v, want 0", got)
	}
}

func TestFine(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 12345: "12.3µs", 2345678: "2.35ms", 999999: "1ms", time.Second + 23456789: "1.02s", time.Minute: "1m0s",
	} {
		if got := fine(d.Seconds()); got != want {
			t.Errorf("fine(%v) = %q, want %q", d, got, want)
		}
	}
}
