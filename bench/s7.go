package main

import (
	"slices"
	"time"
)

// manyWaiters is S7: a thousand goroutines contend for one key, and each hold lasts 5 ms, so
// most of them wait all the time. It measures what their waiting costs the server.
func manyWaiters() scenario {
	const hold, window = 5 * time.Millisecond, 8 * time.Second
	return scenario{
		name: "S7",
		variants: []variant{
			{
				name: "1 process of 1000 waiters, 5 ms held", procs: 1, load: load{Goroutines: 1000, Hold: hold}, window: window,
				targets: []target{{column: "cmds/s a process", op: "≤", bound: 10}},
			},
			{
				// The lock passes between processes all the time, so commands are
				// counted per hand-over.
				name: "8 processes of 125 waiters, 5 ms held", procs: 8, load: load{Goroutines: 125, Hold: hold}, window: window,
				targets: []target{{column: "cmds/op", op: "≤", bound: 8}, {column: "reads/op", op: "≤", bound: 2.1}},
			},
		},
		columns: []column{
			perSecond(), // 200 at most
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
