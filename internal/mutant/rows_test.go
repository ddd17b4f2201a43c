package mutant

// rowsMutants are the mutants of what the drivers for SQL databases share.
var rowsMutants = []mutant{
	{
		guarantee: "lost answers", pkg: "driver/driverkit/rows",
		in:    "State.HolderOf",
		old:   "h.Nonce == nonce",
		new:   "false",
		tests: "TestLostAnswer",
	},
	{
		guarantee: "lost answers", pkg: "pglock",
		file:  "sql/decide.sql",
		old:   "e->>'nonce' = $2::text AND NOT e ? 'kept' AS mine",
		new:   "false AS mine",
		tests: "TestCut/Granting",
	},
	{
		guarantee: "heartbeats go on", pkg: "driver/driverkit/rows",
		in:    "registry.runPoller",
		old:   "lastPoll = time.Now()",
		new:   "w.retryCleanups(HeartbeatTimeout / 2)\nlastPoll = time.Now()",
		tests: "TestHungRemovalDelaysNoHeartbeat",
	},
	{
		guarantee: "held-up requests", pkg: "driver/driverkit",
		in:    "Batcher.Do",
		old:   "b.overtake(g)",
		new:   "_ = b.overtake",
		tests: "TestBatcher/HeldUp",
	},
	{
		guarantee: "an outage is not a holder", pkg: "driver/driverkit/rows",
		in:    "Attempt.contextError",
		old:   "err = a.d.registry.pollError(a)",
		new:   "_ = a.d.registry.pollError(a)",
		tests: "TestPastOutage",
	},
	{
		guarantee: "wild tokens", pkg: "driver/driverkit/rows",
		in:    "MaxTokenLead",
		old:   "MaxTokenLead = 24 * time.Hour",
		new:   "MaxTokenLead = 48 * time.Hour",
		tests: "TestRows/PruneIgnoresHugeTokens", testsIn: "pglock",
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
		in:    "Driver.removal",
		old:   "if unsure {",
		new:   "if false {",
		tests: "TestRemoveAgain/NoAnswer",
	},
	{
		guarantee: "releases arrive", pkg: "driver/driverkit/rows",
		in:    "registry.recordCleanup",
		old:   "w.pendingCleanup[nonce] = fn",
		new:   "_ = w.pendingCleanup",
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
		guarantee: "outages end waits", pkg: "driver/driverkit/rows",
		in:    "registry.outageError",
		old:   "return a.pollErr",
		new:   "return nil",
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
