package mutant

// mysqlMutants are the mutants of mysqllock.
var mysqlMutants = []mutant{
	{
		guarantee: "a check keeps the lock", pkg: "mysqllock",
		in:    "readLocked",
		old:   "WHERE name = ? LOCK IN SHARE MODE`",
		new:   "WHERE name = ?`",
		tests: "TestIsOwnerKeepsTheLock",
	},
	{
		guarantee: "losses are told", pkg: "mysqllock",
		in:    "link.checkOpen",
		old:   "return c.ResetSession(ctx)",
		new:   "_ = c",
		tests: "TestSession/TellsWhenServerDies TestSession/TellsBeforeGrant",
	},
	{
		guarantee: "tokens increase", pkg: "mysqllock",
		in:    "acquireFast",
		old:   "LAST_INSERT_ID(2 * GREATEST(token + 1, {clock}) +",
		new:   "LAST_INSERT_ID(2 * {clock} +",
		tests: "TestServerKilled",
	},
	{
		guarantee: "releases arrive", pkg: "mysqllock",
		in:    "Driver.release",
		old:   "l.RetryRelease(err)",
		new:   "_ = l.RetryRelease",
		tests: "TestHungServer/ReleaseSession",
	},
	{
		guarantee: "clocks that go back", pkg: "mysqllock",
		in:    "cappedSince",
		old:   "cappedSince = `LEAST(since, {clock})`",
		new:   "cappedSince = `since`",
		tests: "TestClockBack/Released TestClockBack/MinHold",
	},
	{
		guarantee: "malformed entries", pkg: "mysqllock",
		in:    "Driver.extend",
		old:   "driverkit.Isolate(all, isMalformed,",
		new:   "driverkit.Isolate(all, func(error) bool { return false },",
		tests: "TestMalformedRow",
	},
	{
		guarantee: "absurd times", pkg: "mysqllock",
		in:    "free",
		old:   "ends <= {clock} AND holders",
		new:   "ends - {clock} <= 0 AND holders",
		tests: "TestWildRow/Rows",
	},
	{
		guarantee: "places are kept", pkg: "mysqllock",
		in:    "heartbeat",
		old:   "ON DUPLICATE KEY UPDATE ends",
		new:   "ON DUPLICATE KEY UPDATE version = {bump}, ends",
		tests: "TestWildProcess",
	},
	{
		guarantee: "late requests", pkg: "mysqllock",
		in:    "Driver.acquireFast",
		old:   "if res.repeated {",
		new:   "if false {",
		tests: "TestLateOnFullServer",
	},
	{
		guarantee: "one holder", pkg: "mysqllock",
		in:    "lifetime",
		old:   "rows.Between(0, e.TTL)",
		new:   "rows.Between(0, e.TTL/2)",
		tests: "TestClockBack/KilledTried",
	},
	{
		guarantee: "dead holders", pkg: "mysqllock",
		in:    "lifetime",
		old:   "return rows.Between(0, e.TTL)",
		new:   "return 0",
		tests: "TestClockBack/Killed",
	},
	{
		guarantee: "MinHold", pkg: "mysqllock",
		in:    "lifetime",
		old:   "return rows.Between(e.Since, e.Until)",
		new:   "return time.Millisecond",
		tests: "TestClockBack/KeptBefore",
	},
}
