package main

import "time"

// serverStall is S8: like S2, but the server stops for 100 ms after a quarter of the window.
// It shows which libraries do not recover.
func serverStall() scenario {
	return scenario{
		name: "S8",
		variants: []variant{{
			name: "64 goroutines, own keys, 100 ms stall", procs: 1,
			load: load{Goroutines: 64, Keys: 1}, window: 4 * time.Second, stall: 100 * time.Millisecond,
			targets: []target{{column: "longest waiting ms", op: "≤", bound: 10}},
		}},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p99", 99, time.Microsecond), waited("longest", 100, time.Microsecond),
			{"waiting at the end", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(len(p.Unfinished)) })
			}, false},
			longestWaiting("longest waiting ms"),
			leastServed(), mostServed(), commandsPerOp(),
		},
	}
}
