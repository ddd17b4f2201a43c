package main

import "time"

// heldLocks is S6: 10,000 locks are held and renewed every 2 s. It measures the
// cost of holding.
func heldLocks() scenario {
	return scenario{
		name: "S6",
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
		columns: []column{
			{"CPU-s/min", func(r *run) float64 { return perMinute(r, r.clientCPU()+r.server.CPU) }, true},
			{"client CPU-s/min", func(r *run) float64 { return perMinute(r, r.clientCPU()) }, true},
			{"server CPU-s/min", func(r *run) float64 { return perMinute(r, r.server.CPU) }, true},
			{"goroutines", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.Goroutines) })
			}, false},
			{"RSS MiB", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.RSS) / (1 << 20) })
			}, true},
			{"take all s", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return p.Took.Seconds() })
			}, false},
			{"cmds/s", func(r *run) float64 { return float64(r.server.Commands) / r.window.Seconds() }, false},
			{"reads/s", func(r *run) float64 { return float64(r.server.Reads) / r.window.Seconds() }, false},
			{"allocs/s", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.Mallocs) }) / r.window.Seconds()
			}, false},
			{"keys at end", func(r *run) float64 { return float64(r.server.Keys) }, false},
			{"hung", func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(p.Hung) })
			}, false},
			{"lost", func(r *run) float64 { return float64(r.lost().N) }, false},
		},
		lowerIsBetter: true,
		ratio:         true,
	}
}

func perMinute(r *run, cpu time.Duration) float64 { return cpu.Seconds() / r.window.Minutes() }
