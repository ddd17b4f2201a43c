package main

import "time"

// uncontended is S1: one goroutine without contention. It measures the cost of a
// cycle of Acquire and Release.
func uncontended() scenario {
	targets := []target{
		{column: "ops/s", relativeTo: best, op: "≥", bound: 0.95},
		{column: "ops/s", relativeTo: best, op: "≥", bound: 1.05, stretch: true},
	}
	return scenario{
		name: "S1",
		variants: []variant{
			{name: "1 goroutine, same key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 2 * time.Second, targets: targets},
			{name: "1 goroutine, 1024 keys", procs: 1, load: load{Goroutines: 1, Keys: 1024}, window: 2 * time.Second, targets: targets},
		},
		columns: uncontendedColumns(),
		ratio:   true,
	}
}

// uncontendedColumns returns the columns for scenarios in which each goroutine has
// its own keys.
func uncontendedColumns() []column {
	return []column{
		perSecond(),
		waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
		waited("longest", 100, time.Microsecond),
		longestWaiting("longest waiting ms"),
		allocsPerOp(), bytesPerOp(), commandsPerOp(), readsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
	}
}
