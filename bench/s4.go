package main

import (
	"math"
	"slices"
	"time"
)

// S4: several processes want one key and hold it for 1 ms. It asks how long a lock lies idle on its way from one process
// to another, and whether it goes there at all.
func s4() scenario {
	alone := load{Goroutines: 1, Hold: time.Millisecond}
	targets := []target{
		{column: "cross gap p50 µs", over: "blpop", is: "≤", bound: 1.5},
		{column: "cross share", is: "≥", bound: 0.95},
	}
	return scenario{
		name: "S4",
		variants: []variant{
			{name: "2 processes, 1 ms held", procs: 2, load: alone, window: 2 * time.Second, targets: targets},
			{name: "8 processes, 1 ms held", procs: 8, load: alone, window: 2 * time.Second, targets: targets},
		},
		columns: []column{
			perSecond(),
			{"idle share", func(r *run) float64 { return float64(r.chain.idle) / float64(r.window) }, false},
			crossShare(),
			gap("cross gap p50 µs", 50, true), gap("p95", 95, false), gap("p99", 99, false),
			{"from rel. return p50", func(r *run) float64 { return rank(r.chain.fromReturn, 50) / 1e3 }, false},
			waited("acq p99 ms", 99, time.Millisecond), waited("longest", 100, time.Millisecond),
			leastOfProcesses(), mostOfProcesses(),
			overlaps(), commandsPerOp(), readsPerOp(),
		},
	}
}

func leastOfProcesses() column {
	return column{"process min", func(r *run) float64 { return float64(slices.Min(r.servedByProcess())) }, false}
}

func mostOfProcesses() column {
	return column{"process max", func(r *run) float64 { return float64(slices.Max(r.servedByProcess())) }, false}
}

// rank is the given percentile of a sorted list.
func rank(sorted []int64, percent int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return float64(sorted[(len(sorted)-1)*percent/100])
}
