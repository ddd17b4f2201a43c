package main

import "time"

// sharedKey is S3: many goroutines of one process contend for one key. It measures whether each
// of them sends requests to the server, and whether each of them is served.
func sharedKey() scenario {
	return scenario{
		name: "S3",
		variants: []variant{
			{
				name: "16 goroutines, one key", procs: 1, load: load{Goroutines: 16}, window: 2 * time.Second,
				targets: []target{{column: "max/min", op: "≤", bound: 1.2}},
			},
			{
				name: "64 goroutines, one key", procs: 1, load: load{Goroutines: 64}, window: 2 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 100}, {column: "max/min", op: "≤", bound: 1.2}},
			},
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
			waited("longest", 100, time.Microsecond),
			leastServed(), mostServed(), fairness(),
			longestWaiting("longest waiting ms"),
			overlaps(), allocsPerOp(), commandsPerOp(), clientCPUPerOp(),
		},
		ratio: true,
	}
}
