package mutant

// nemesisMutants are the mutants of the judges of the nemesis and of the lab, and some of snib
// itself that the lab must reject.
var nemesisMutants = []mutant{
	{
		guarantee: "lost writes are found", pkg: "cmd/sniblab/internal/judge",
		in:    "register.write",
		old:   "if g.seen[h] != g.writes {",
		new:   "if false {",
		tests: "TestJudge",
	},
	{
		guarantee: "late grants are no disorder", pkg: "cmd/sniblab/internal/judge",
		in:    "Result.countBack",
		old:   "if inOne && before.last != nil && e.Token <= before.last.Token {\nearlier = before.last",
		new:   "if inOne && now.last != nil && e.Token <= now.last.Token {\nearlier = now.last",
		tests: "TestJudge",
	},
	{
		guarantee: "tokens begin anew once", pkg: "cmd/sniblab/internal/judge",
		in:    "Rules.beginAnew",
		old:   "fault == rules.Restart.Fault && begun[rules.Restart.After]",
		new:   "begun[rules.Restart.Fault] && begun[rules.Restart.After]",
		tests: "TestJudge",
	},
	{
		guarantee: "the protocol is kept", pkg: "cmd/sniblab/internal/target",
		in:    "phase.follow",
		old:   "m.Type == Granted && now == asked",
		new:   "m.Type == Granted",
		tests: "TestWrong",
	},
	{
		guarantee: "overlaps are found", pkg: "internal/history",
		in:    "findOverlaps",
		old:   "if !h.conflicts(o) {\ncontinue",
		new:   "if h.conflicts(o) {\ncontinue",
		tests: "TestCheck",
	},
	{
		guarantee: "disorder is found", pkg: "internal/history",
		in:    "findDisorder",
		old:   "h.Token <= before.Token",
		new:   "h.Token < before.Token",
		tests: "TestCheck",
	},
	{
		guarantee: "standstill is found", pkg: "internal/history",
		in:    "timeline.unserved",
		old:   "h.Acquired > s.healed && h.Acquired <= until {",
		new:   "h.Acquired > s.healed {",
		tests: "TestCheck",
	},
	{
		guarantee: "narrow excuses", pkg: "internal/history",
		in:    "timeline.allowedBy",
		old:   "if f.name == a.Fault && (",
		new:   "if (",
		tests: "TestCheck TestAllowance",
	},
	{
		guarantee: "the lab rejects holders that end late", pkg: ".",
		in:    "lease.extend",
		old:   "le.deadline = start.Add(le.ttl - safetyOf(le.ttl))",
		new:   "le.deadline = start.Add(4 * le.ttl)",
		tests: "TestAccepts/LateEnd", testsIn: "cmd/sniblab",
	},
	{
		guarantee: "the lab rejects releases of another's hold", pkg: "redislock",
		file:  "script/release.lua",
		old:   "local json, multi = findGrant(id)",
		new:   "local json, multi = lockValue()",
		tests: "TestAccepts/LateRelease", testsIn: "cmd/sniblab",
	},
}
