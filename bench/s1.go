package main

import "time"

// S1: one goroutine, which nobody is in the way of. It asks what a cycle of Acquire and Release costs by itself.
func s1() scenario {
	targets := []target{
		{column: "ops/s", over: best, is: "≥", bound: 0.95},
		{column: "ops/s", over: best, is: "≥", bound: 1.05, stretch: true},
	}
	return scenario{
		name: "S1",
		variants: []variant{
			{name: "1 goroutine, same key", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 2 * time.Second, targets: targets},
			{name: "1 goroutine, 1024 keys", procs: 1, load: load{Goroutines: 1, Keys: 1024}, window: 2 * time.Second, targets: targets},
		},
		columns: uncontended(),
		ratio:   true,
	}
}

// uncontended are the columns where each goroutine has keys of its own.
func uncontended() []column {
	return []column{
		perSecond(),
		waited("acq p50 µs", 50, time.Microsecond), waited("p95", 95, time.Microsecond), waited("p99", 99, time.Microsecond),
		waited("longest", 100, time.Microsecond),
		longestWaiting("longest waiting ms"),
		allocsPerOp(), bytesPerOp(), commandsPerOp(), readsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
	}
}
