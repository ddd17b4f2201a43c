package main

import "time"

// ownKeys is S2: many goroutines, each with its own key. It measures how well
// commands are pipelined.
func ownKeys() scenario {
	return scenario{
		name: "S2",
		variants: []variant{
			{
				name: "64 goroutines, own keys", procs: 1, load: load{Goroutines: 64, Keys: 1}, window: 2 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 1.6}},
			},
			{
				name: "512 goroutines, own keys", procs: 1, load: load{Goroutines: 512, Keys: 1}, window: 2 * time.Second,
				targets: []target{{column: "ops/s", relativeTo: best, op: "≥", bound: 2}},
			},
		},
		columns: uncontendedColumns(),
		ratio:   true,
	}
}
