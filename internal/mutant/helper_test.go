package mutant

// helperMutants are the mutants of the guards, of leader and cron, of the metrics, and of the
// command.
var helperMutants = []mutant{
	{
		guarantee: "guards compare", pkg: "fence",
		in:    "Mark.After",
		old:   "m.Token == last.Token && m.Owner == last.Owner",
		new:   "m.Token == last.Token",
		tests: "TestAcceptedIsSerial",
	},
	{
		guarantee: "claims", pkg: "fence",
		in:    "Open",
		old:   "if err = g.Do(ctx, m, nil); err != nil {",
		new:   "if err = m.Check(); err != nil {",
		tests: "TestPausedHold",
	},
	{
		guarantee: "one at a time", pkg: "fence",
		in:    "Memory.Do",
		old:   "defer func() { s.free <- struct{}{} }()",
		new:   "s.free <- struct{}{}",
		tests: "TestMemoryExcludes",
	},
	{
		guarantee: "torn marks", pkg: "fence",
		in:    "decodeSlot",
		old:   `sum != fmt.Sprintf("%08x", checksum(text)) ||`,
		new:   `sum == "" ||`,
		tests: "TestTornMark",
	},
	{
		guarantee: "lost marks", pkg: "fence",
		in:    "File.checkNew",
		old:   "if g.Adopt {",
		new:   "if true {",
		tests: "TestMarksAreGone",
	},
	{
		guarantee: "links", pkg: "fence",
		in:    "noFollow",
		old:   "noFollow = syscall.O_NOFOLLOW",
		new:   "noFollow = 0 * syscall.O_NOFOLLOW",
		tests: "TestLinks",
	},
	{
		guarantee: "redirects", pkg: "fence",
		in:    "Transport.RoundTrip",
		old:   "if staysWithHost(r) {",
		new:   "if true {",
		tests: "TestRedirect",
	},
	{
		guarantee: "one leader", pkg: "leader",
		in:    "candidate.campaign",
		old:   "failure = c.fn(term, lock)",
		new:   "failure = c.fn(ctx, lock)",
		tests: "TestLoss",
	},
	{
		guarantee: "one run per tick", pkg: "cron",
		in:    "New",
		old:   "locker.With(snib.NoWait(), snib.MinHold(minHold))",
		new:   "locker.With(snib.NoWait())",
		tests: "TestOncePerTick",
	},
	{
		guarantee: "late ticks", pkg: "cron",
		in:    "Runner.checkAge",
		old:   "driver.Now().Sub(began) < r.minHold",
		new:   "true",
		tests: "TestLate/Run",
	},
	{
		guarantee: "metrics", pkg: "metriclabel",
		in:    "Classes.Class",
		old:   "class != Other && len(c.byClass) < c.limit",
		new:   "class != Other",
		tests: "TestMillionNames", testsIn: "metrics",
	},
	{
		guarantee: "passwords", pkg: "cmd/snib/internal/backend",
		in:    "urlKind.split",
		old:   `strings.Contains(path+query, "@")`,
		new:   `strings.Contains(path+query, "@") && false`,
		tests: "TestNoPartOfAPassword",
	},
	{
		guarantee: "terminals", pkg: "cmd/snib/internal/cli",
		in:    "oneLine",
		old:   "case unicode.IsGraphic(r):",
		new:   "case true:",
		tests: "TestHostileErrors",
	},
}
