package main

import (
	"math"
	"slices"
	"time"
)

// handOver is S4: several processes contend for one key and hold it for 1 ms. It measures how
// long a lock is idle while it passes from one process to another, and how often it does so.
func handOver() scenario {
	alone := load{Goroutines: 1, Hold: time.Millisecond}
	targets := []target{
		{column: "cross gap p50 µs", relativeTo: "blpop", op: "≤", bound: 1.5},
		{column: "cross share", op: "≥", bound: 0.95},
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
			{"from rel. return p50", func(r *run) float64 { return percentile(r.chain.fromReturn, 50) / 1e3 }, false},
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

// percentile returns a percentile of a sorted list, or NaN if the list is empty.
func percentile(sorted []int64, percent int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return float64(sorted[(len(sorted)-1)*percent/100])
}
