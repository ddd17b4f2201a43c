package mutant

// cmdMutants are the mutants of the command.
var cmdMutants = []mutant{
	{
		guarantee: "an outage is not a holder", pkg: "cmd/snib/internal/cli",
		in:    "runCommand.handleTaken",
		old:   "if t, ok := errors.AsType[takenError](err); ok {",
		new:   "if r.skip {\nreturn nil\n}\nif t, ok := errors.AsType[takenError](err); ok {",
		tests: "TestUnavailableIsNotBusy",
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
	{
		guarantee: "the kill follows", pkg: "cmd/snib/internal/cli",
		in:    "supervisor.forwardSignal",
		old:   "g.killIn(g.run.killAfter.value)",
		new:   "g.killAt = time.Now().Add(g.run.killAfter.value)",
		tests: "TestKillAfter", testsIn: "cmd/snib",
	},
	{
		guarantee: "snib ends", pkg: "cmd/snib/internal/cli",
		in:    "closeSoon",
		old:   "case <-time.After(feedbackInterval):",
		new:   "case <-time.After(time.Hour):",
		tests: "TestCloseSoon",
	},
	{
		guarantee: "leaks spares the living", pkg: "cmd/snib/internal/cli",
		in:    "leaksCommand.confirm",
		old:   "return now, !renewed",
		new:   "return now, true || renewed",
		tests: "TestLeaksLeavesTheLivingAlone", testsIn: "cmd/snib",
	},
	{
		guarantee: "leaks are found", pkg: "cmd/snib/internal/cli",
		in:    "leaksCommand.leaksOf",
		old:   "case h.Left == driver.NoExpiry:",
		new:   "case false:",
		tests: "TestLeaksFindsEachKind", testsIn: "cmd/snib",
	},
	{
		guarantee: "--fix spares data", pkg: "cmd/snib/internal/cli",
		in:    "leaksCommand.isRepairable",
		old:   "k.hold != nil && !k.unsure",
		new:   "k.hold != nil",
		tests: "TestLeaksFindsEachKind", testsIn: "cmd/snib",
	},
	{
		guarantee: "doctor", pkg: "cmd/snib/internal/backend",
		in:    "examinePostgres",
		old:   `values[3] != "off"`,
		new:   `values[3] != "never"`,
		tests: "TestDoctorPostgres", testsIn: "cmd/snib",
	},
	{
		guarantee: "absurd times", pkg: "cmd/snib/internal/cli",
		in:    "leaksCommand.leaksOf",
		old:   "case h.Left >= endlessLeft:",
		new:   "case false:",
		tests: "TestDistantEnd", testsIn: "cmd/snib",
	},
}
