package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/redlock"
)

// uncontended has one goroutine without contention. It measures the cost of a cycle of Acquire and
// Release.
func uncontended() scenario {
	targets := []target{
		{column: "ops/s", relativeTo: best, op: "≥", bound: 0.95},
		{column: "ops/s", relativeTo: best, op: "≥", bound: 1.05, stretch: true},
	}
	return scenario{
		name: "uncontended",
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
		longestWaiting(),
		allocsPerOp(), bytesPerOp(), commandsPerOp(), readsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
	}
}

// ownKeys has many goroutines, each with its own key. It measures how well commands are pipelined.
func ownKeys() scenario {
	return scenario{
		name: "own-keys",
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

// sharedKey has many goroutines of one process that contend for one key. It measures whether each
// of them sends requests to the server, and whether each of them is served.
func sharedKey() scenario {
	return scenario{
		name: "one-key",
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
			longestWaiting(),
			overlaps(), allocsPerOp(), commandsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
		},
		ratio: true,
	}
}

// handOver has several processes that contend for one key and hold it for 1 ms. It measures how
// long a lock is idle while it passes from one process to another, and how often it does so.
func handOver() scenario {
	alone := load{Goroutines: 1, Hold: time.Millisecond}
	targets := []target{
		{column: "cross gap p50 µs", relativeTo: "blpop", op: "≤", bound: 1.5},
		{column: "cross share", op: "≥", bound: 0.95},
	}
	return scenario{
		name: "hand-over",
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
			overlaps(), commandsPerOp(), readsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
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

// majority is Redlock over five nodes. It measures the cost of a majority, and whether nodes
// that don't answer delay callers, or leave goroutines or locks behind. In some variants, one or
// two nodes are killed or hung after the warm-up. Hung nodes are resumed at the end of the window,
// before the libraries are closed.
func majority() scenario {
	one, many := load{Goroutines: 1, Keys: 1}, load{Goroutines: 64, Keys: 1}
	clean := []target{{column: "keys left", op: "≤", bound: 0}, {column: "errors", op: "≤", bound: 0}}
	faulty := func(name string, l load, killed, hung int) variant {
		return variant{name: name, procs: 1, load: l, window: 3 * time.Second, nodes: 5, killed: killed, hung: hung, targets: clean}
	}
	healthy := faulty("healthy, 64 goroutines", many, 0, 0)
	healthy.targets = append([]target{{column: "ops/s", relativeTo: best, op: "≥", bound: 5}}, clean...)
	oneKey := faulty("healthy, 64 goroutines, one key", load{Goroutines: 64}, 0, 0)
	oneKey.targets = append([]target{{column: "ops/s", relativeTo: best, op: "≥", bound: 100}, {column: "max/min", op: "≤", bound: 1.2}}, clean...)
	return scenario{
		name: "redlock",
		variants: []variant{
			faulty("healthy, 1 goroutine", one, 0, 0),
			faulty("1 killed, 1 goroutine", one, 1, 0), faulty("1 killed, 64 goroutines", many, 1, 0),
			faulty("1 hung, 1 goroutine", one, 0, 1), faulty("1 hung, 64 goroutines", many, 0, 1),
			faulty("2 hung, 1 goroutine", one, 0, 2), faulty("2 hung, 64 goroutines", many, 0, 2),
			healthy, oneKey,
		},
		columns: []column{
			perSecond(),
			waited("acq p50 µs", 50, time.Microsecond), waited("p99", 99, time.Microsecond), waited("longest", 100, time.Microsecond),
			{"goroutines", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.Goroutines) })
			}, false},
			fairness(),
			{"errors", func(r *run) float64 { return float64(r.gaveUp().N + r.lost().N) }, false},
			{"keys left", func(r *run) float64 { return float64(r.keysLeft) }, false},
			allocsPerOp(), clientCPUPerOp(), serverCPUPerOp(),
		},
		ratio: true,
	}
}

func openSnibOverNodes(s setup) (*client, error) {
	servers := nodeOptions(s.nodes)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := redlock.Admin(servers).Init(ctx); err != nil {
		return nil, err
	}
	d, err := redlock.Open(ctx, servers)
	if err != nil {
		return nil, err
	}
	return snibClient(s, d)
}

// heldLocks holds 10,000 locks and renews them every 2 s. It measures the cost of holding.
func heldLocks() scenario {
	return scenario{
		name: "held-locks",
		variants: []variant{{
			name: "10,000 locks held, TTL 6 s", procs: 1,
			load:   load{Locks: 10_000, TTL: 6 * time.Second},
			window: 20 * time.Second,
			targets: []target{
				{column: "CPU-s/min", relativeTo: best, op: "≤", bound: 0.35},
				{column: "goroutines", op: "≤", bound: 25},
				{column: "lost", op: "≤", bound: 0},
			},
		}},
		columns: slices.Concat(heldColumns(), []column{
			{"cmds/s", func(r *run) float64 { return float64(r.server.Commands) / r.window.Seconds() }, false},
			{"reads/s", func(r *run) float64 { return float64(r.server.Reads) / r.window.Seconds() }, false},
			{"keys at end", func(r *run) float64 { return float64(r.server.Keys) }, false},
		}),
		lowerIsBetter: true,
		ratio:         true,
	}
}

// heldColumns returns the columns for scenarios in which locks are held.
func heldColumns() []column {
	return []column{
		{"CPU-s/min", func(r *run) float64 { return perMinute(r, r.clientCPU()+r.server.CPU) }, true},
		{"client CPU-s/min", func(r *run) float64 { return perMinute(r, r.clientCPU()) }, true},
		{"server CPU-s/min", func(r *run) float64 { return perMinute(r, r.server.CPU) }, true},
		{"goroutines", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.Goroutines) })
		}, false},
		{"RSS MiB", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.RSS) / (1 << 20) })
		}, true},
		{"B/hold", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.HeldBytes) })
		}, true},
		{"take all s", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return p.Took.Seconds() })
		}, false},
		{"allocs/s", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.Mallocs) }) / r.window.Seconds()
		}, false},
		{"hung", func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.Hung) })
		}, false},
		{"lost", func(r *run) float64 { return float64(r.lost().N) }, false},
	}
}

// heldInSession holds 10,000 locks in a store whose leases end with a session. The server uses
// processor time even if nobody asks it anything; the figures contain that.
func heldInSession(name string, server func(testing.TB) (string, *livetest.Process)) scenario {
	return scenario{
		name:   name,
		server: server,
		variants: []variant{{
			name: "10,000 locks held, session 15 s", procs: 1,
			load:    load{Locks: 10_000, TTL: 15 * time.Second},
			window:  30 * time.Second,
			targets: []target{{column: "goroutines", op: "≤", bound: 50}, {column: "lost", op: "≤", bound: 0}},
		}},
		columns:       heldColumns(),
		lowerIsBetter: true,
		ratio:         true,
	}
}

func perMinute(r *run, cpu time.Duration) float64 { return cpu.Seconds() / r.window.Minutes() }

// manyWaiters has a thousand goroutines that contend for one key. Each hold lasts 5 ms, so most of
// them wait all the time. It measures what their waiting costs the server.
func manyWaiters() scenario {
	const hold, window = 5 * time.Millisecond, 8 * time.Second
	return scenario{
		name: "many-waiters",
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
			longestWaiting(),
			leastServed(), mostServed(),
			{"never served", func(r *run) float64 {
				return float64(len(slices.DeleteFunc(r.served(), func(n int) bool { return n > 0 })))
			}, false},
			leastOfProcesses(), mostOfProcesses(),
			overlaps(), allocsPerOp(),
		},
	}
}

// serverStall is ownKeys, but the server stops for 100 ms after a quarter of the window. It shows
// which libraries do not recover.
func serverStall() scenario {
	return scenario{
		name: "stall",
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
			longestWaiting(),
			leastServed(), mostServed(), commandsPerOp(),
		},
	}
}
