package main

import (
	"math"
	"slices"
	"time"
)

// A column is a figure that each run has.
type column struct {
	title         string             // in full words, with the unit; a key in results files
	of            func(*run) float64 // NaN if the run has no such figure
	spread        bool               // shown with its range
	lowerIsBetter bool
}

// Titles that aims and pages name. The percentiles are of Acquire, from the first attempt to
// success. A hand-over lasts from the call of Release to the grant in another process.
const (
	cyclesPerSecond   = "cycles/s"
	acquireP50        = "acquire p50 µs"
	acquireP99        = "acquire p99 µs"
	acquireMean       = "acquire mean µs"
	handOverP50       = "hand-over p50 µs"
	handOverP95       = "hand-over p95 µs"
	crossShare        = "share to another process"
	commandsPerCycle  = "commands/cycle"
	serverCPU         = "server CPU µs/cycle"
	cpuPerMinute      = "CPU s/min"
	mostToLeast       = "most/least served"
	longestUnfinished = "longest unfinished wait ms"
)

// cycleColumns are for scenarios in which each goroutine has its own names.
func cycleColumns() []column {
	return []column{
		perSecond(),
		waited(acquireP50, 50, time.Microsecond), waited("acquire p95 µs", 95, time.Microsecond), waited(acquireP99, 99, time.Microsecond),
		waited("acquire max µs", 100, time.Microsecond), longestWaiting(),
		allocationsPerCycle(), bytesPerCycle(), commands(), reads(), clientCPUPerCycle(), serverCPUPerCycle(),
	}
}

// contendedColumns are for scenarios in which goroutines of one process contend for one name.
func contendedColumns() []column {
	return []column{
		perSecond(),
		waited(acquireP50, 50, time.Microsecond), waited("acquire p95 µs", 95, time.Microsecond), waited(acquireP99, 99, time.Microsecond),
		waited("acquire max µs", 100, time.Microsecond), longestWaiting(),
		leastServed(), mostServed(), fairness(), overlaps(),
		allocationsPerCycle(), commands(), clientCPUPerCycle(), serverCPUPerCycle(),
	}
}

// handOverColumns are for scenarios in which processes contend for one name.
func handOverColumns() []column {
	return []column{
		handOverTime(handOverP50, 50, true),
		{title: crossShare, of: func(r *run) float64 { return float64(r.chain.crossed) / float64(r.chain.handOvers) }},
		handOverTime(handOverP95, 95, false), handOverTime("hand-over p99 µs", 99, false),
		{title: "p50 from Release's return µs", of: func(r *run) float64 { return percentile(r.chain.fromReturn, 50) / 1e3 }},
		perSecond(),
		{title: "idle share", of: func(r *run) float64 { return float64(r.chain.idle) / float64(r.window) }},
		waited("acquire p99 ms", 99, time.Millisecond), waited("acquire max ms", 100, time.Millisecond),
		leastServedProcess(), mostServedProcess(), overlaps(),
		commands(), reads(), clientCPUPerCycle(), serverCPUPerCycle(),
	}
}

// heldColumns are for scenarios in which many locks are held.
func heldColumns() []column {
	return []column{
		{title: cpuPerMinute, of: func(r *run) float64 { return perMinute(r, r.clientCPU()+r.server.CPU) }, spread: true, lowerIsBetter: true},
		{title: "client CPU s/min", of: func(r *run) float64 { return perMinute(r, r.clientCPU()) }, spread: true},
		{title: "server CPU s/min", of: func(r *run) float64 { return perMinute(r, r.server.CPU) }, spread: true},
		goroutines(),
		{title: "memory MiB", of: func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.RSS) / (1 << 20) })
		}, spread: true},
		{title: "bytes/hold", of: func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.HeldBytes) })
		}, spread: true},
		{title: "time to take all s", of: func(r *run) float64 {
			return r.sum(func(p *result) float64 { return p.Took.Seconds() })
		}},
		commandsPerSecond(),
		{title: "reads/s", of: func(r *run) float64 { return r.server.Reads / r.window.Seconds() }},
		{title: "allocations/s", of: func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.Mallocs) }) / r.window.Seconds()
		}},
		{title: "keys at the end", of: func(r *run) float64 { return r.server.Keys }},
		{title: "hung acquisitions", of: func(r *run) float64 {
			return r.sum(func(p *result) float64 { return float64(p.Hung) })
		}},
		{title: "lost locks", of: func(r *run) float64 { return float64(r.lost().N) }},
	}
}

func perMinute(r *run, cpu time.Duration) float64 { return cpu.Seconds() / r.window.Minutes() }

// waitingColumns are for scenarios in which most goroutines wait all the time.
func waitingColumns() []column {
	return []column{
		perSecond(), // 200 at most, with holds of 5 ms
		commandsPerSecond(), commands(), reads(),
		{title: "server cores", of: func(r *run) float64 { return r.server.CPU.Seconds() / r.window.Seconds() }},
		{title: "client cores", of: func(r *run) float64 { return r.clientCPU().Seconds() / r.window.Seconds() }},
		waited("acquire p50 ms", 50, time.Millisecond), waited("acquire max ms", 100, time.Millisecond), longestWaiting(),
		leastServed(), mostServed(),
		{title: "never served", of: func(r *run) float64 {
			return float64(len(slices.DeleteFunc(r.served(), func(n int) bool { return n > 0 })))
		}},
		leastServedProcess(), mostServedProcess(), overlaps(), allocationsPerCycle(),
	}
}

// storeColumns are for scenarios that compare stores.
func storeColumns() []column {
	return []column{
		perSecond(),
		waited(acquireP50, 50, time.Microsecond), waited("acquire p95 µs", 95, time.Microsecond), waited(acquireP99, 99, time.Microsecond),
		waited("acquire max µs", 100, time.Microsecond), longestWaiting(),
		leastServedProcess(), mostServedProcess(), overlaps(),
		allocationsPerCycle(), clientCPUPerCycle(), serverCPUPerCycle(),
	}
}

func perSecond() column {
	return column{title: cyclesPerSecond, of: func(r *run) float64 { return r.cycles() / r.window.Seconds() }, spread: true}
}

// waited returns a column with a percentile of the time from the first attempt to
// success; 100 is the longest.
func waited(title string, percent float64, unit time.Duration) column {
	return column{title: title, of: func(r *run) float64 {
		if r.waits.TotalCount() == 0 {
			return math.NaN()
		}
		return float64(r.waits.ValueAtPercentile(percent)) / float64(unit)
	}, spread: percent == 50, lowerIsBetter: true}
}

// longestWaiting returns a column with the longest wait that was unfinished at the
// end of the window.
func longestWaiting() column {
	return column{title: longestUnfinished, of: func(r *run) float64 {
		var longest time.Duration
		for _, p := range r.procs {
			for _, d := range p.Unfinished {
				longest = max(longest, d)
			}
		}
		return longest.Seconds() * 1e3
	}, spread: true}
}

// handOverTime returns a column with a percentile of the time from the call of Release to the
// grant in another process, in microseconds.
func handOverTime(title string, percent int, spread bool) column {
	return column{title: title, of: func(r *run) float64 { return percentile(r.chain.gaps, percent) / 1e3 }, spread: spread, lowerIsBetter: true}
}

// percentile returns a percentile of a sorted list, or NaN if the list is empty.
func percentile(sorted []int64, percent int) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return float64(sorted[(len(sorted)-1)*percent/100])
}

func allocationsPerCycle() column {
	return column{title: "allocations/cycle", of: perCycle(func(r *run) float64 {
		return r.sum(func(p *result) float64 { return float64(p.Mallocs) })
	})}
}

func bytesPerCycle() column {
	return column{title: "allocated bytes/cycle", of: perCycle(func(r *run) float64 {
		return r.sum(func(p *result) float64 { return float64(p.Bytes) })
	})}
}

func commands() column {
	return column{title: commandsPerCycle, of: perCycle(func(r *run) float64 { return r.server.Commands })}
}

func commandsPerSecond() column {
	return column{title: "commands/s", of: func(r *run) float64 { return r.server.Commands / r.window.Seconds() }, spread: true}
}

func reads() column {
	return column{title: "reads/cycle", of: perCycle(func(r *run) float64 { return r.server.Reads })}
}

func clientCPUPerCycle() column {
	return column{title: "client CPU µs/cycle", of: perCycle(func(r *run) float64 { return r.clientCPU().Seconds() * 1e6 })}
}

func serverCPUPerCycle() column {
	return column{title: serverCPU, of: perCycle(func(r *run) float64 { return r.server.CPU.Seconds() * 1e6 })}
}

func goroutines() column {
	return column{title: "goroutines", of: func(r *run) float64 {
		return r.sum(func(p *result) float64 { return float64(p.Goroutines) })
	}}
}

// leastServed and mostServed are columns with the smallest and the greatest number
// of acquisitions of a goroutine.
func leastServed() column {
	return column{title: "least served goroutine", of: func(r *run) float64 { return float64(slices.Min(r.served())) }}
}

func mostServed() column {
	return column{title: "most served goroutine", of: func(r *run) float64 { return float64(slices.Max(r.served())) }}
}

func fairness() column {
	return column{title: mostToLeast, of: func(r *run) float64 {
		// The ratio is infinite if a goroutine got nothing.
		return float64(slices.Max(r.served())) / float64(slices.Min(r.served()))
	}}
}

func leastServedProcess() column {
	return column{title: "least served process", of: func(r *run) float64 { return float64(slices.Min(r.servedByProcess())) }}
}

func mostServedProcess() column {
	return column{title: "most served process", of: func(r *run) float64 { return float64(slices.Max(r.servedByProcess())) }}
}

func overlaps() column {
	return column{title: "overlaps", of: func(r *run) float64 {
		return max(r.sum(func(p *result) float64 { return float64(p.Overlaps) }), float64(r.chain.overlaps))
	}}
}

func perCycle(of func(*run) float64) func(*run) float64 {
	return func(r *run) float64 { return of(r) / r.cycles() }
}

// cycles returns the number of acquisitions.
func (r *run) cycles() float64 {
	return float64(r.waits.TotalCount())
}

func (r *run) sum(of func(*result) float64) float64 {
	var sum float64
	for _, p := range r.procs {
		sum += of(p)
	}
	return sum
}

func (r *run) clientCPU() time.Duration {
	return time.Duration(r.sum(func(p *result) float64 { return float64(p.CPU) }))
}

// served returns the number of acquisitions of each goroutine.
func (r *run) served() []int {
	var all []int
	for _, p := range r.procs {
		all = append(all, p.Served...)
	}
	return all
}

// servedByProcess returns the number of acquisitions of each process.
func (r *run) servedByProcess() []int {
	var all []int
	for _, p := range r.procs {
		n := 0
		for _, s := range p.Served {
			n += s
		}
		all = append(all, n)
	}
	return all
}

func (r *run) gaveUp() (all errorCount) {
	for _, p := range r.procs {
		all.add(p.GaveUp)
	}
	return all
}

func (r *run) lost() (all errorCount) {
	for _, p := range r.procs {
		all.add(p.Lost)
	}
	return all
}
