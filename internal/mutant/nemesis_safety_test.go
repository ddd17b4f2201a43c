//go:build mutants

package mutant

var nemesisMutants = []mutant{
	{
		breaks: "internal/nemesis: a belief does not last beyond its validity",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "min(o.End, o.Sure), min(h.End, h.Sure)); sum > 0",
		new: "o.End, h.End); sum > 0",
	},
	{
		breaks: "internal/nemesis: two who believe at a time are found",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "		if !h.conflicts(o) {\n				continue",
		new: "		if h.conflicts(o) {\n				continue",
	},
	{
		breaks: "internal/nemesis: somebody who was not told is found",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "sum > untoldTolerance {",
		new: "sum > 1000*untoldTolerance {",
	},
	{
		breaks: "internal/nemesis: a holder of a broken lease who is told too late is found",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "			if sum > within {",
		new: "			if sum > 1000*within {",
	},
	{
		breaks: "internal/nemesis: a holder of a broken lease is not to blame while it was stopped",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "merge(append(slices.Clone(disturbed), h.pauses...))",
		new: "disturbed",
	},
	{
		breaks: "internal/nemesis: more holders than slots are found",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "		if n > h.Slots {",
		new: "		if n > h.Slots+1 {",
	},
	{
		breaks: "internal/nemesis: a token that comes twice is out of order",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "h.Token <= before.Token",
		new: "h.Token < before.Token",
	},
	{
		breaks: "internal/nemesis: tokens are in order for waiters, too",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "		report(h, lastAlone)\n",
		new: "",
	},
	{
		breaks: "internal/nemesis: tokens of readers are in order",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "		report(h, last)\n",
		new: "		report(h, nil)\n",
	},
	{
		breaks: "internal/nemesis: MinHold is looked at",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "case h.MinHold > 0 && h.Released:",
		new: "case false:",
	},
	{
		breaks: "internal/nemesis: LockDelay is looked at",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "case h.Delay > 0 && s.processes[h.Worker].ended == h.End: // killed",
		new: "case false:",
	},
	{
		breaks: "internal/nemesis: LockDelay is looked at after a loss",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "case h.Delay > 0 && h.Lost:",
		new: "case false:",
	},
	{
		breaks: "internal/nemesis: progress has a bound",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "h.Acquired > s.healed && h.Acquired <= until {",
		new: "h.Acquired > s.healed {",
	},
	{
		breaks: "internal/nemesis: an assumption covers its fault only",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: "			if f.name == a.Fault && (",
		new: "			if (",
	},
	{
		breaks: "internal/nemesis: an assumption ends some time after its fault",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: " && v.Until <= f.during.until+int64(a.For) {",
		new: " {",
	},
	{
		breaks: "internal/nemesis: an assumption covers its locks only",
		file:   "internal/nemesis/history/check.go", run: "TestCheck|TestAllowance",
		old: " || a.Names != nil && !slices.Contains(a.Names, v.Name) {",
		new: " {",
	},
	{
		breaks: "internal/nemesis: a process that was stopped is not to blame",
		file:   "internal/nemesis/history/hold.go", run: "TestCheck|TestAllowance",
		old: "proc(e.Worker).pauses = append(proc(e.Worker).pauses, span{e.At, math.MaxInt64})",
		new: "_ = math.MaxInt64",
	},
	{
		breaks: "internal/nemesis: a process that goes on is to blame again",
		file:   "internal/nemesis/history/hold.go", run: "TestCheck|TestAllowance",
		old: "off[i].until = e.At + resumeTolerance",
		new: "_ = e.At + resumeTolerance",
	},
	{
		breaks: "internal/nemesis: a process that the machine did not run is not to blame",
		file:   "internal/nemesis/history/hold.go", run: "TestCheck|TestAllowance",
		old: "proc(e.Worker).pauses = append(proc(e.Worker).pauses, span{e.At, e.Until + resumeTolerance})",
		new: "_ = e.Until + resumeTolerance",
	},
	{
		breaks: "internal/nemesis: a process that was killed believes nothing",
		file:   "internal/nemesis/history/hold.go", run: "TestCheck|TestAllowance",
		old: "		h.End = min(h.End, p.ended, s.lastEvent)",
		new: "		h.End = min(h.End, s.lastEvent)",
	},
	{
		breaks: "internal/nemesis: an assumption that no run breaks is found",
		file:   "etcdlock/etcdlock.go", pkg: "internal/nemesis", run: "TestAssumptionsStated",
		old: `"the members' clocks run at the rate of the clients'",`,
		new: `"the members' clocks run at the rate of the clients'", "nobody pulls the plug",`,
	},
	{
		breaks: "internal/nemesis: an assumption that nobody states any more is found",
		file:   "zklock/zklock.go", pkg: "internal/nemesis", run: "TestAssumptionsStated",
		old: `			"nobody else deletes or makes nodes below the root other than locks",
`,
		new: "",
	},
}
