package mutant

// rowsMutants are the mutants of what the drivers for SQL databases share.
var rowsMutants = []mutant{
	{
		guarantee: "wild tokens", pkg: "driver/driverkit/rows",
		in:    "MaxTokenLead",
		old:   "MaxTokenLead = 24 * time.Hour",
		new:   "MaxTokenLead = 48 * time.Hour",
		tests: "TestRows/PruneIgnoresHugeTokens", testsIn: "pglock",
	},
	{
		guarantee: "strangers count", pkg: "driver/driverkit/rows",
		in:    "session.isTaken",
		old:   "other.lockKey == le.lockKey",
		new:   "false",
		tests: "TestSession/OneKey",
	},
	{
		guarantee: "losses are told", pkg: "driver/driverkit/rows",
		in:    "session.onLinkEnd",
		old:   "lost := s.d.LeasesOf()",
		new:   "lost := s.d.LeasesOf()[:1]",
		tests: "TestSession/Ends",
	},
	{
		guarantee: "places are kept", pkg: "driver/driverkit/rows",
		in:    "registry.runPoller",
		old:   "heartbeatDue := lastPoll.Sub(lastHeartbeat) >= HeartbeatInterval*9/10",
		new:   "heartbeatDue := false",
		tests: "TestHeartbeats",
	},
	{
		guarantee: "late requests", pkg: "driver/driverkit/rows",
		in:    "Attempt.withdraw",
		old:   "if a.late {",
		new:   "if false {",
		tests: "TestRemoveAgain/NoAnswer",
	},
	{
		guarantee: "releases arrive", pkg: "driver/driverkit/rows",
		in:    "registry.recordCleanup",
		old:   "w.pendingCleanup[nonce], w.removals[nonce] = fn, true",
		new:   "w.removals[nonce] = true",
		tests: "TestRemoveAfterOutage",
	},
	{
		guarantee: "outages are waited for", pkg: "driver/driverkit/rows",
		in:    "Attempt.runRound",
		old:   "a.served = a.served || a.Queued || full",
		new:   "a.served = false",
		tests: "TestOutageOfWaiter/Short",
	},
	{
		guarantee: "a new session", pkg: "driver/driverkit/rows",
		in:    "Driver.Acquire",
		old:   "tries = 3",
		new:   "tries = 1",
		tests: "TestSession/EndsWhileGranted",
	},
	{
		guarantee: "outages end waits", pkg: "driver/driverkit/rows",
		in:    "registry.failWaiting",
		old:   "a.outageErr = err",
		new:   "_ = err",
		tests: "TestOutageOfWaiter/LongSleep",
	},
	{
		guarantee: "absurd times", pkg: "driver/driverkit/rows",
		in:    "Between",
		old:   "d > most.Microseconds()",
		new:   "false",
		tests: "TestBetween",
	},
}
