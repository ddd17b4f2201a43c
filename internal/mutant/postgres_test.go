package mutant

// postgresMutants are the mutants of pglock.
var postgresMutants = []mutant{
	{
		guarantee: "dead holders", pkg: "pglock",
		in:    "liveSession",
		old:   "THEN NOT pg_try_advisory_xact_lock_shared(1936615778, (e->>'session')::int) ELSE true END",
		new:   "THEN true ELSE true END",
		tests: "TestSession/DeadSessionIsFree",
	},
	{
		guarantee: "a check keeps the lock", pkg: "pglock",
		in:    "lockRow",
		old:   "FOR SHARE`",
		new:   "`",
		tests: "TestIsOwnerKeepsTheLock",
	},
	{
		guarantee: "tokens increase", pkg: "pglock",
		in:    "acquireFast",
		old:   "greatest(c.now, l.token + 1) AS token FROM",
		new:   "c.now AS token FROM",
		tests: "TestRows/TokenAheadOfClock",
	},
	{
		guarantee: "crashes keep tokens", pkg: "pglock",
		in:    "newStatements",
		old:   `"{flush}", flush,`,
		new:   `"{flush}", noFlush,`,
		tests: "TestCrash",
	},
	{
		guarantee: "forgotten rows", pkg: "pglock",
		in:    "prune",
		old:   "AND l.token <= (SELECT token FROM {table} WHERE name = '')",
		new:   "",
		tests: "TestRows/PruneKeepsTokens",
	},
	{
		guarantee: "one hold's tokens", pkg: "pglock",
		in:    "current",
		old:   "AND $2::bigint BETWEEN (e->>'token')::bigint AND",
		new:   "AND $2::bigint BETWEEN 0 AND",
		tests: "TestIsOwner",
	},
	{
		guarantee: "wanted", pkg: "pglock",
		in:    "Driver.onNotification",
		old:   "l.NotifyWanted()",
		new:   "_ = l",
		tests: "TestRows/Wanted",
	},
	{
		guarantee: "clocks that go back", pkg: "pglock",
		in:    "release",
		old:   "least((e->>'since')::bigint, c.now) + $4::bigint AS least",
		new:   "(e->>'since')::bigint + $4::bigint AS least",
		tests: "TestClockBack/Released TestClockBack/MinHold",
	},
	{
		guarantee: "unsafe stores", pkg: "pglock",
		in:    "checkDirect",
		old:   "pid != conn.PgConn().PID()",
		new:   "false",
		tests: "TestSessionPooled",
	},
	{
		guarantee: "no outage", pkg: "pglock",
		in:    "isNetworkError",
		old:   "errors.As(err, &unknown) && unknown.IsNotFound",
		new:   "errors.As(err, &unknown) && false",
		tests: "TestUnavailable",
	},
	{
		guarantee: "malformed entries", pkg: "pglock",
		in:    "Driver.Renew",
		old:   "driverkit.Isolate(due, isMalformed,",
		new:   "driverkit.Isolate(due, func(error) bool { return false },",
		tests: "TestMalformedRow",
	},
	{
		guarantee: "forged messages", pkg: "pglock",
		in:    "Driver.verifyOnce",
		old:   "held := slices.ContainsFunc(",
		new:   "held := false && slices.ContainsFunc(",
		tests: "TestForgedNotifications",
	},
}
