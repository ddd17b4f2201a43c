package mutant

// nemesisMutants are the mutants of the judge of the nemesis.
var nemesisMutants = []mutant{
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
