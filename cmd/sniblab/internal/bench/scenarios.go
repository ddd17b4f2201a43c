package main

import (
	"fmt"
	"testing"
	"time"
)

// uncontended has one goroutine without contention.
func uncontended() scenario {
	return scenario{
		name: "uncontended", id: "S1",
		about: "One goroutine takes and releases locks that nobody else wants, on one Redis: what a cycle costs.",
		start: used(startRedis(1)),
		peers: append(redisPeers(), memoryPeer(), floorPeer()),
		variants: []variant{
			{
				name: "1 goroutine, one name", procs: 1, load: load{Goroutines: 1, Keys: 1}, window: 2 * time.Second,
				aims: []aim{
					{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 1},
					{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 1.05, wished: true},
					{column: serverCPU, relativeTo: "redsync-rueidis", op: "≤", bound: 0.7},
				},
			},
			{
				name: "1 goroutine, 1024 names", procs: 1, load: load{Goroutines: 1, Keys: 1024}, window: 2 * time.Second,
				aims: []aim{{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 1}},
			},
		},
		columns: cycleColumns(),
	}
}

// ownNames has many goroutines, each with its own names.
func ownNames() scenario {
	many := func(goroutines, names int, bound float64) variant {
		v := variant{
			name: fmt.Sprintf("%d goroutines, own names", goroutines), procs: 1,
			load: load{Goroutines: goroutines, Keys: names}, window: 2 * time.Second,
			aims: []aim{
				{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: bound},
				{column: serverCPU, relativeTo: "redsync-rueidis", op: "≤", bound: 0.7},
			},
		}
		if names > 1 {
			v.name += fmt.Sprintf(", %d in all", goroutines*names)
		}
		return v
	}
	return scenario{
		name: "own-names", id: "S2",
		about:    "Many goroutines take and release locks that nobody else wants, on one Redis: how well commands are pipelined.",
		start:    used(startRedis(1)),
		peers:    append(redisPeers(), memoryPeer(), floorPeer()),
		variants: []variant{many(64, 1, 1.4), many(64, 16, 1.4), many(512, 1, 1.8)},
		columns:  cycleColumns(),
	}
}

// oneName has many goroutines of one process that contend for one name.
func oneName() scenario {
	return scenario{
		name: "one-name", id: "S3",
		about: "Many goroutines of one process contend for one lock, on one Redis: whether each of them talks to the server, and whether each is served.",
		start: used(startRedis(1)),
		peers: append(redisPeers(), memoryPeer()),
		variants: []variant{
			{
				name: "16 goroutines, one name", procs: 1, load: load{Goroutines: 16}, window: 2 * time.Second,
				aims: []aim{{column: mostToLeast, op: "≤", bound: 1.2}},
			},
			{
				name: "64 goroutines, one name", procs: 1, load: load{Goroutines: 64}, window: 2 * time.Second,
				aims: contendedAims(),
			},
		},
		columns: contendedColumns(),
	}
}

// contendedAims are those of 64 goroutines of one process that contend for one name.
func contendedAims() []aim {
	return []aim{{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: 100}, {column: mostToLeast, op: "≤", bound: 1.2}}
}

// handOver has several processes that contend for one name and hold it for 1 ms.
func handOver() scenario {
	aims := []aim{
		{column: handOverP50, relativeTo: "blpop", op: "≤", bound: 1.5},
		{column: crossShare, op: "≥", bound: 0.95},
		{column: commandsPerCycle, op: "≤", bound: 15},
	}
	return scenario{
		name: "hand-over", id: "S4",
		about: "Processes contend for one lock and hold it for 1 ms, on one Redis: how long it is idle between two of them, and how often it passes to another one.",
		start: used(startRedis(1)),
		peers: append(redisPeersBeside("blpop"), peer{name: "blpop", role: floor, open: openBlpop,
			about: "a token in a list, the fastest hand-over that one Redis can do; lost with its holder"}),
		variants: []variant{takeTurns(2, aims), takeTurns(8, aims)},
	}
}

// takeTurns has processes that contend for one name and hold it for 1 ms.
func takeTurns(procs int, aims []aim) variant {
	return variant{
		name:  fmt.Sprintf("%d processes, one name, 1 ms held", procs),
		procs: procs, load: load{Goroutines: 1, Hold: time.Millisecond}, window: 2 * time.Second, aims: aims,
		columns: handOverColumns(),
	}
}

// majority is Redlock over five nodes. In some variants, one or two nodes are killed or hung
// after the warm-up. Hung nodes are resumed at the end of the window, before the libraries are
// closed.
func majority() scenario {
	one, many := load{Goroutines: 1, Keys: 1}, load{Goroutines: 64, Keys: 1}
	nodes := func(name string, l load, killed, hung int, aims ...aim) variant {
		aims = append(aims, aim{column: "keys left", op: "≤", bound: 0}, aim{column: "errors", op: "≤", bound: 0})
		return variant{name: name, procs: 1, load: l, window: 2 * time.Second, fresh: true, killed: killed, hung: hung, aims: aims}
	}
	faster := func(bound float64) aim {
		return aim{column: cyclesPerSecond, relativeTo: best, op: "≥", bound: bound}
	}
	return scenario{
		name: "redlock", id: "S5",
		about: "Redlock over five Redis servers, of which some are killed or hung: what a majority costs, and whether servers that don't answer delay callers, or leave goroutines or locks behind.",
		start: startRedis(5),
		peers: []peer{
			{name: snibRow, role: ours, open: openRedlock, about: "snib with its default options"},
			{name: "redsync-go-redis", open: openRedsync, about: "redsync over go-redis with its default options: it waits for all servers"},
			{name: "redsync-rueidis", open: openRedsyncRueidis, about: "the same over rueidis"},
			{name: "redsync-go-redis-fail-fast", open: withFailFast(openRedsync), about: "redsync over go-redis with the option WithFailFast: it waits for a majority"},
			{name: "redsync-rueidis-fail-fast", open: withFailFast(openRedsyncRueidis), about: "the same over rueidis"},
		},
		variants: []variant{
			nodes("healthy, 1 goroutine", one, 0, 0, faster(1)),
			nodes("healthy, 64 goroutines, own names", many, 0, 0, faster(3)),
			nodes("healthy, 64 goroutines, one name", load{Goroutines: 64}, 0, 0, contendedAims()...),
			nodes("1 killed, 1 goroutine", one, 1, 0), nodes("1 killed, 64 goroutines, own names", many, 1, 0),
			nodes("1 hung, 1 goroutine", one, 0, 1), nodes("1 hung, 64 goroutines, own names", many, 0, 1),
			nodes("2 hung, 1 goroutine", one, 0, 2), nodes("2 hung, 64 goroutines, own names", many, 0, 2),
		},
		columns: []column{
			perSecond(),
			waited(acquireP50, 50, time.Microsecond), waited(acquireP99, 99, time.Microsecond), waited("acquire max µs", 100, time.Microsecond),
			goroutines(), fairness(),
			{title: "errors", of: func(r *run) float64 { return float64(r.gaveUp().N + r.lost().N) }},
			{title: "keys left", of: func(r *run) float64 { return float64(r.keysLeft) }},
			allocationsPerCycle(), clientCPUPerCycle(), serverCPUPerCycle(),
		},
	}
}

// heldLocks holds 10,000 locks and renews them every 2 s.
func heldLocks() scenario {
	return scenario{
		name: "held-locks", id: "S6",
		about:   "One process holds 10,000 locks and renews each every 2 s, on one Redis: what holding costs.",
		start:   used(startRedis(1)),
		peers:   append(redisPeers(), floorPeer()),
		columns: heldColumns(),
		variants: []variant{{
			name: "10,000 locks held, TTL 6 s", procs: 1,
			load:   load{Locks: 10_000, TTL: 6 * time.Second},
			window: 12 * time.Second,
			aims: []aim{
				{column: cpuPerMinute, relativeTo: best, op: "≤", bound: 0.35},
				{column: "goroutines", op: "≤", bound: 25},
				{column: "lost locks", op: "≤", bound: 0},
			},
		}},
	}
}

// heldInSession holds 10,000 locks in a store whose leases end with a session. The server uses
// processor time even if nobody asks it anything; the figures contain that.
func heldInSession(name, about string, start func(testing.TB) *store, peers []peer) scenario {
	return scenario{
		name:    name,
		about:   about,
		start:   start,
		peers:   peers,
		columns: heldColumns(),
		variants: []variant{{
			name: "10,000 locks held, session 15 s", procs: 1,
			load:   load{Locks: 10_000, TTL: 15 * time.Second},
			window: 30 * time.Second,
			aims: []aim{
				{column: cpuPerMinute, relativeTo: best, op: "≤", bound: 1.2},
				{column: "goroutines", op: "≤", bound: 50},
				{column: "lost locks", op: "≤", bound: 0},
			},
		}},
	}
}

// manyWaiters has a thousand goroutines that contend for one name. Each hold lasts 5 ms, so most of
// them wait all the time.
func manyWaiters() scenario {
	const hold, window = 5 * time.Millisecond, 6 * time.Second
	return scenario{
		name: "many-waiters", id: "S7",
		about: "A thousand goroutines contend for one lock and hold it for 5 ms, on one Redis: what their waiting costs the server, and whether each is served.",
		start: used(startRedis(1)),
		peers: redisPeers(),
		variants: []variant{
			{
				name: "1 process of 1000 waiters, 5 ms held", procs: 1, load: load{Goroutines: 1000, Hold: hold}, window: window,
				aims: []aim{{column: "commands/s", op: "≤", bound: 10}},
			},
			{
				// The lock passes between processes all the time, so commands are
				// counted per hand-over.
				name: "8 processes of 125 waiters, 5 ms held", procs: 8, load: load{Goroutines: 125, Hold: hold}, window: window,
				aims: []aim{{column: commandsPerCycle, op: "≤", bound: 10}, {column: "reads/cycle", op: "≤", bound: 2.1}},
			},
		},
		columns: waitingColumns(),
	}
}

// serverStall is ownNames, but the server stops for 100 ms after a quarter of the window.
func serverStall() scenario {
	return scenario{
		name: "stall", id: "S8",
		about: "64 goroutines take and release locks of their own, and the only Redis stops once for 100 ms: whether all recover.",
		start: used(startRedis(1)),
		peers: append(redisPeers(), floorPeer()),
		variants: []variant{{
			name: "64 goroutines, own names, 100 ms stall", procs: 1,
			load: load{Goroutines: 64, Keys: 1}, window: 3 * time.Second, stall: 100 * time.Millisecond,
			aims: []aim{{column: longestUnfinished, op: "≤", bound: 10}},
		}},
		columns: []column{
			perSecond(),
			waited(acquireP50, 50, time.Microsecond), waited(acquireP99, 99, time.Microsecond), waited("acquire max µs", 100, time.Microsecond),
			{title: "waiting at the end", of: func(r *run) float64 {
				return r.sum(func(p *result) float64 { return float64(len(p.Unfinished)) })
			}},
			longestWaiting(),
			leastServed(), mostServed(), commands(),
		},
	}
}
