package mutant

// nemesisMutants are the mutants of the judges of the nemesis and of the lab.
var nemesisMutants = []mutant{
	{
		guarantee: "lost writes are found", pkg: "lab/judge",
		in:    "register.write",
		old:   "if g.seen[h] != g.writes {",
		new:   "if false {",
		tests: "TestJudge",
	},
	{
		guarantee: "late grants are no disorder", pkg: "lab/judge",
		in:    "Judge",
		old:   "v.Holds[0].Acquired <= v.Holds[1].Call() && ",
		new:   "",
		tests: "TestJudge",
	},
	{
		guarantee: "the protocol is kept", pkg: "lab/contestant",
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
}
