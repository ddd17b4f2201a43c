package main

import (
	"slices"
	"time"
)

// S7: a thousand goroutines want one key, each hold lasts 5 ms, and so most of them wait all the time. It asks what their
// waiting costs the server.
func s7() scenario {
	const hold, window = 5 * time.Millisecond, 8 * time.Second
	return scenario{
		name: "S7",
		variants: []variant{
			{
				name: "1 process of 1000 waiters, 5 ms held", procs: 1, load: load{Goroutines: 1000, Hold: hold}, window: window,
				targets: []target{{column: "cmds/s a process", is: "≤", bound: 10}},
			},
			{
				// The lock goes from process to process all the time, so commands are counted by hand-over.
				name: "8 processes of 125 waiters, 5 ms held", procs: 8, load: load{Goroutines: 125, Hold: hold}, window: window,
				targets: []target{{column: "cmds/op", is: "≤", bound: 8}, {column: "reads/op", is: "≤", bound: 2.1}},
			},
		},
		columns: []column{
			perSecond(), // at most 200
			{"cmds/s", func(r *run) float64 { return float64(r.server.Commands) / r.window.Seconds() }, true},
			{"cmds/s a process", func(r *run) float64 {
				return float64(r.server.Commands) / r.window.Seconds() / float64(len(r.procs))
			}, false},
			commandsPerOp(), readsPerOp(),
			{"server cores", func(r *run) float64 { return r.server.CPU.Seconds() / r.window.Seconds() }, false},
			{"client cores", func(r *run) float64 { return r.clientCPU().Seconds() / r.window.Seconds() }, false},
			waited("acq p50 ms", 50, time.Millisecond), waited("longest", 100, time.Millisecond),
			longestWaiting("longest waiting ms"),
			leastServed(), mostServed(),
			{"never served", func(r *run) float64 {
				return float64(len(slices.DeleteFunc(r.served(), func(n int) bool { return n > 0 })))
			}, false},
			leastOfProcesses(), mostOfProcesses(),
			overlaps(), allocsPerOp(),
		},
	}
}
