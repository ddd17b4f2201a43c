package main

import "time"

// S2: many goroutines, each with a key of its own. It asks how well commands are put together on the way.
func s2() scenario {
	return scenario{
		name: "S2",
		variants: []variant{
			{
				name: "64 goroutines, own keys", procs: 1, load: load{Goroutines: 64, Keys: 1}, window: 2 * time.Second,
				targets: []target{{column: "ops/s", over: best, is: "≥", bound: 1.6}},
			},
			{
				name: "512 goroutines, own keys", procs: 1, load: load{Goroutines: 512, Keys: 1}, window: 2 * time.Second,
				targets: []target{{column: "ops/s", over: best, is: "≥", bound: 2}},
			},
		},
		columns: uncontended(),
		ratio:   true,
	}
}
