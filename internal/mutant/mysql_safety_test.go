//go:build mutants

package mutant

var mysqlSafetyMutants = []mutant{
	{
		breaks: "mysqllock: the end of a session reaches its holder before another process takes the lock",
		file:   "mysqllock/session.go", run: "TestSession/TellsBeforeGrant",
		old: "const takeoverDelay = 10 * closeCheckInterval", new: "const takeoverDelay = 0 * closeCheckInterval",
	},
	{
		breaks: "mysqllock: a token that is far ahead of the clock does not raise those of new locks",
		file:   "mysqllock/prune.go", run: "TestRows$/PruneIgnoresHugeTokens",
		old: "maxTokenLead = 24 * time.Hour", new: "maxTokenLead = 48 * time.Hour",
	},
	{
		breaks: "mysqllock: a lock whose tokens are used up is not granted with a negative one",
		file:   "mysqllock/state.go", run: "TestRows$/PruneIgnoresHugeTokens",
		old: "	if s.token >= tooHigh {\n", new: "	if false {\n",
	},
	{
		breaks: "mysqllock: a row that the server can't compute with costs the process none of its other leases",
		file:   "mysqllock/lease.go", run: "TestMalformedRow",
		old: "driverkit.Isolate(all, isMalformed,", new: "driverkit.Isolate(all, func(error) bool { return false },",
	},
	{
		breaks: "mysqllock: a malformed row costs no other reader of the process its lease",
		file:   "mysqllock/lease.go", run: "TestMalformedRow",
		old: "		if isMalformed(err) {\n", new: "		if false {\n",
	},
	{
		breaks: "mysqllock: a malformed row costs no other waiter of the process its place",
		file:   "mysqllock/state.go", run: "TestMalformedRow",
		old: "	return s, nil\n}\n\n// parse parses", new: "	return s, err\n}\n\n// parse parses",
	},
	{
		breaks: "mysqllock: a session whose name the server refuses costs no other waiter its place",
		file:   "mysqllock/state.go", run: "TestMalformedRow",
		old: "len(h.Session) > longestKey {", new: "len(h.Session) > 1000 {",
	},
	{
		breaks: "mysqllock: a list says which row it could not read",
		file:   "mysqllock/inspect.go", run: "TestMalformedRow",
		old: "firstMalformed = cmp.Or(firstMalformed, s.malformed)", new: "_ = s.malformed",
	},
	{
		breaks: "mysqllock: a session does not take a lock for broken whose row it can't read",
		file:   "mysqllock/session.go", run: "TestMalformedRow",
		old: "row == nil || row.malformed == nil && ", new: "row == nil || ",
	},
	{
		breaks: "mysqllock: what can't be given up, because the server is full, does not keep it busy",
		file:   "mysqllock/wait.go", run: "TestRows/WithdrawnFromFull",
		old: "cmp.Or(d.pollOnce(), err)", new: "d.pollOnce()",
	},
	{
		breaks: "mysqllock: a holder is told of the end of its connection, and not by the next ping",
		file:   "mysqllock/link.go", run: "TestSession/Tells",
		old: "return c.ResetSession(l.Context())", new: "_ = c",
	},
	{
		breaks: "driverkit: a call ends within the time in which Acquire returns",
		file:   "driver/driverkit/call.go", run: "TestCancelDelay",
		old: "CancelDelay = driver.CancelTimeout / 2", new: "CancelDelay = 2 * driver.CancelTimeout",
	},
	{
		breaks: "driverkit: the end of a call says that the server has not answered, and not that somebody cancelled",
		file:   "driver/driverkit/call.go", run: "TestDetached",
		old: "func() { cancel(noAnswerError(ctx)) }", new: "func() { cancel(nil) }",
	},
	{
		breaks: "mysqllock: a request that was given up, and is executed late, is removed",
		file:   "mysqllock/acquire.go", run: "TestConformance/Stall/GivenUp",
		old: "if a.interrupted {\n		lastDue", new: "if false && a.interrupted {\n		lastDue",
	},
	{
		breaks: "mysqllock: a release that timed out in a session is made up for",
		file:   "mysqllock/lease.go", run: "TestHungServer/ReleaseSession",
		old: "l.d.registry.recordCleanup(l.d, l.nonce, l.completeRelease, err)", new: "_ = l.completeRelease",
	},
	{
		breaks: "mysqllock: a lock that was released is free after the clock was set back",
		file:   "mysqllock/statement.go", run: "TestClockBack/(Released|MinHold)",
		old: "cappedSince = `LEAST(since, {clock})`", new: "cappedSince = `since`",
	},
	{
		breaks: "mysqllock: a slot that was released is free after the clock was set back",
		file:   "mysqllock/lease.go", run: "TestClockBack/ReadersAndSlots",
		old: "h.Since = min(h.Since, s.now)", new: "h.Since = max(h.Since, 0)",
	},
	{
		breaks: "mysqllock: a killed holder's lock is taken after its TTL although the clock was set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/Killed$",
		old: "time.Since(since) > h.lifetime()+heartbeatInterval", new: "time.Since(since) > h.lifetime()+time.Hour",
	},
	{
		breaks: "mysqllock: a waiter takes no hold that has not been unchanged for its whole TTL",
		file:   "mysqllock/clock.go", run: "TestClockBack/Alive",
		old: "time.Since(since) > h.lifetime()+heartbeatInterval", new: "time.Since(since) > 0",
	},
	{
		breaks: "mysqllock: a request that does not wait lets the lock of a killed holder end although the clock was set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/KilledTried",
		old: "h.Until > s.now+h.lifetime().Microseconds()", new: "h.Kept && h.Until > s.now+h.lifetime().Microseconds()",
	},
	{
		breaks: "mysqllock: the new end of a hold leaves its holder the whole TTL",
		file:   "mysqllock/clock.go", run: "TestClockBack/KilledTried",
		old: "h.Until, write = s.now+h.lifetime().Microseconds(), true", new: "h.Until, write = s.now, true",
	},
	{
		breaks: "mysqllock: a request that does not wait lets the MinHold of a released lock end although the clock was set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/KeptBefore",
		old: "h.Until > s.now+h.lifetime().Microseconds()", new: "!h.Kept && h.Until > s.now+h.lifetime().Microseconds()",
	},
	{
		breaks: "mysqllock: the MinHold of a session's lock ends for a waiter although the clock was set back",
		file:   "mysqllock/wait.go", run: "TestClockBack/KeptSession",
		old: "w.expireUnchanged(s)", new: "if d.session == nil {\n			w.expireUnchanged(s)\n		}",
	},
	{
		breaks: "mysqllock: a waiter passes one that was killed before the clock was set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/DeadWaiterSeen",
		old: "p.ends > now && time.Since(p.since) < heartbeatTimeout+heartbeatInterval", new: "p.ends > now",
	},
	{
		breaks: "mysqllock: a request that does not wait passes a waiter that was killed before the clock was set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/DeadWaiterTried",
		old: "len(names) > 0 {", new: "len(names) > 1000 {",
	},
	{
		breaks: "mysqllock: a waiter that lives keeps its place when the clock is set back",
		file:   "mysqllock/clock.go", run: "TestClockBack/LiveWaiter",
		old: "time.Since(p.since) < heartbeatTimeout+heartbeatInterval", new: "time.Since(p.since) < 0",
	},
	{
		breaks: "mysqllock: hundreds of waiters use a bounded number of connections",
		file:   "mysqllock/mysqllock.go", run: "TestHerd/(Rows|Session)",
		old: "connections: 8}", new: "connections: 1000}",
	},
	{
		breaks: "mysqllock: that the server has no connection left is a reason to wait",
		file:   "mysqllock/error.go", run: "TestHerd/Full",
		old: "return slices.Contains([]uint16{tooManyConnections, tooManyOfUser, userLimit}, code(err))", new: "return false",
	},
	{
		breaks: "mysqllock: Acquire does not wait for its withdrawal on a server that hangs",
		file:   "mysqllock/acquire.go", run: "TestConformance$/Sever/(AcquireReturns|CancelWaiter)",
		old: "time.NewTimer(left)", new: "time.NewTimer(left + driverkit.CleanupTimeout)",
	},
	{
		breaks: "mysqllock: dead connections of the pool are no matter of the caller's",
		file:   "mysqllock/query.go", run: "TestStaleConnections/Rows",
		old: "case isConnectionError(err) && !errors", new: "case false && !errors",
	},
	{
		breaks: "mysqllock: Close does not wait for a server that hangs",
		file:   "mysqllock/session.go", run: "TestHungServer/Session",
		old: "context.WithTimeoutCause(context.Background(), driverkit.CleanupTimeout, errNoAnswer)",
		new: "context.WithTimeoutCause(context.Background(), 20*time.Second, errNoAnswer)",
	},
	{
		breaks: "mysqllock: a table that was emptied is filled again",
		file:   "mysqllock/state.go", run: "TestSchema/EmptiedMeanwhile",
		old: "if len(all) == 1 && found[all[0]] == nil {", new: "if false {",
	},
}
