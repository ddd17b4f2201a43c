//go:build mutants

package mutant

var postgresSafetyMutants = []mutant{
	{
		breaks: "cmd/snib: doctor reports a token in a database that is far ahead of the clock",
		file:   "cmd/snib/internal/backend/examine_sql.go", pkg: "cmd/snib", run: "TestDoctor(Postgres|MySQL)$/HugeToken",
		old: "tokenFinding(uint64(max(token, 0)), uint64(clock),", new: "tokenFinding(0*uint64(max(token, 0)), uint64(clock),",
	},
	{
		breaks: "pglock: a token that is far ahead of the clock does not raise those of new locks",
		file:   "pglock/prune.go", run: "TestRows$/PruneIgnoresHugeTokens",
		old: "maxTokenLead = 24 * time.Hour", new: "maxTokenLead = 48 * time.Hour",
	},
	{
		breaks: "pglock: a malformed row costs the process none of its other leases",
		file:   "pglock/lease.go", run: "TestMalformedRow",
		old: "driverkit.Isolate(due, isMalformed, ", new: "driverkit.Isolate(due, func(error) bool { return false }, ",
	},
	{
		breaks: "pglock: a malformed row costs no other waiter of the process its place",
		file:   "pglock/state.go", run: "TestMalformedRow",
		old: "driverkit.Isolate(names, isMalformed, ", new: "driverkit.Isolate(names, func(error) bool { return false }, ",
	},
	{
		breaks: "pglock: a row that the driver can't read is malformed, too",
		file:   "pglock/error.go", run: "TestMalformedRow",
		old: "errors.As(err, new(parseError)) || ", new: "",
	},
	{
		breaks: "pglock: all locks are listed but those of malformed rows",
		file:   "pglock/inspect.go", run: "TestMalformedRow",
		old: "	if !isMalformed(err) {\n", new: "	if true {\n",
	},
	{
		breaks: "pglock: a lock whose row can't be read is not reported as broken",
		file:   "pglock/listen.go", run: "TestMalformedRow",
		old: "case malformed[l.req.Name] != nil: // the next", new: "case len(malformed) < 0: // the next",
	},
	{
		breaks: "pglock: a malformed row does not prevent pruning",
		file:   "pglock/statement.go", run: "TestMalformedRow",
		old: "AND CASE WHEN {wellFormed} THEN", new: "AND CASE WHEN true THEN",
	},
	{
		breaks: "pglock: a session gives up what the row had granted to a request that was given up",
		file:   "pglock/acquire.go", run: "TestSession$/GivenUpWhileGranted",
		old: "	if l != nil || !errors.Is(err, driver.ErrUnavailable) {", new: "	if l = nil; !errors.Is(err, driver.ErrUnavailable) {",
	},
	{
		breaks: "pglock: a request that was given up during an outage is withdrawn after it",
		file:   "pglock/acquire.go", run: "TestWithdrawnLater",
		old: "		a.d.removeEntryLater(a.req.Name, a.entry.Nonce)\n", new: "",
	},
	{
		breaks: "pglock: a hold is in its row when a notification says that it was broken",
		file:   "pglock/listen.go", run: "TestForgedNotifications",
		old: "case err != nil, !s.hasHolder(l.nonce) && !l.markBroken():",
		new: "case err != nil, !l.markBroken():",
	},
	{
		breaks: "pglock: a flood of notifications to a holder costs few statements",
		file:   "pglock/listen.go", run: "TestForgedNotifications",
		old: "time.Until(w.lastVerified.Add(pollInterval))",
		new: "0",
	},
	{
		breaks: "pglock: a flood of notifications to a waiter costs few statements",
		file:   "pglock/wait.go", run: "TestForgedNotifications",
		old: "case now.Sub(a.lastHint) >= pollInterval:",
		new: "case true:",
	},
	{
		breaks: "pglock: a holder whose lease is a row is told that it was broken",
		file:   "pglock/listen.go", run: "TestConformance$/Break/TellsHolder",
		old: "	case 'b': // the lease was broken\n",
		new: "\tcase 'B':\n",
	},
	{
		breaks: "pglock: a holder is told that it was broken before the process listened",
		file:   "pglock/listen.go", run: "TestConformance$/Break/TellsHolder",
		old: "	d.verifyLeases() // notifications may have been missed before\n",
		new: "",
	},
	{
		breaks: "pglock: Break notifies the holder",
		file:   "pglock/statement.go", run: "TestConformance$/Break/TellsHolder",
		old: "WHERE o.name = $1::text AND (e->>'token')::bigint = $2::bigint)`",
		new: "WHERE o.name = $1::text AND (e->>'token')::bigint = -$2::bigint)`",
	},
	{
		breaks: "pglock: a lock that is released is free, at once or after MinHold, although the clock was set back",
		file:   "pglock/statement.go", run: "TestClockBack/(Released|MinHold)",
		old: "least((e->>'since')::bigint, c.now) + $4::bigint AS least",
		new: "(e->>'since')::bigint + $4::bigint AS least",
	},
	{
		breaks: "pglock: the lock of a dead holder is free a TTL after the clock was set back, where somebody waits",
		file:   "pglock/statement.go", run: "TestClockBack/DeadHolder$",
		old: "holders = (SELECT coalesce(jsonb_agg({capped} ORDER BY i)",
		new: "holders = (SELECT coalesce(jsonb_agg(e ORDER BY i)",
	},
	{
		breaks: "pglock: the lock of a dead holder is free a TTL after the clock was set back, where somebody tries",
		file:   "pglock/statement.go", run: "TestClockBack/DeadHolderTried",
		old: "> d.used + (e->>'ttl')::bigint)",
		new: "> d.used + (e->>'ttl')::bigint AND false)",
	},
	{
		breaks: "pglock: a dead waiter is passed although the clock was set back",
		file:   "pglock/statement.go", run: "TestClockBack/DeadWaiter",
		old: `"{cappedWaiter $10}", strings.ReplaceAll(cappedWaiter, "{life}", "$10"), "{cappedWaiter $3}", strings.ReplaceAll(cappedWaiter, "{life}", "$3"), `,
		new: `"{cappedWaiter $10}", "e", "{cappedWaiter $3}", "e", `,
	},
	{
		breaks: "pglock: who gives up on a server that hangs does not wait for the withdrawal",
		file:   "pglock/acquire.go", run: "TestConformance$/Sever/CancelWaiter",
		old: "timeout := driver.CancelTimeout * 4 / 5",
		new: "timeout := 20 * driver.CancelTimeout",
	},
	{
		breaks: "pglock: stale connections of the pool are replaced at once",
		file:   "pglock/query.go", run: "TestStaleConnections",
		old: "stale < int(d.pool.Stat().MaxConns()):",
		new: "stale < 0:",
	},
	{
		breaks: "pglock: an end of a context that the caller did not set is no cause",
		file:   "pglock/error.go", run: "TestUnavailable/RowsSlowToConnect",
		old: "case errors.Is(err, context.DeadlineExceeded): //",
		new: "case false && errors.Is(err, context.DeadlineExceeded): //",
	},
	{
		breaks: "pglock: a statement that meets the user's limits of time is run without them",
		file:   "pglock/query.go", run: "TestStatementTimeout",
		old: "\t\t\tunlimited = true // the",
		new: "\t\t\t// the",
	},
	{
		breaks: "pglock: a server that can't be reached is an outage",
		file:   "pglock/error.go", run: "TestUnavailable",
		old: "\tcase isTransient(err):\n",
		new: "\tcase false:\n",
	},
	{
		breaks: "pglock: an unknown host is no outage",
		file:   "pglock/error.go", run: "TestUnavailable",
		old: "errors.As(err, &unknown) && unknown.IsNotFound",
		new: "errors.As(err, &unknown) && false",
	},
	{
		breaks: "pglock: who waits waits for a connection, too",
		file:   "pglock/acquire.go", run: "TestCrowd",
		old: "case !a.queued && !errors.Is(err, driver.ErrFull):",
		new: "case !a.queued:",
	},
	{
		breaks: "pglock: sessions that nobody uses make room for others",
		file:   "pglock/acquire.go", run: "TestCrowd/Session",
		old: "s != nil && errors.Is(err, driver.ErrFull) && a.d.registry.isIdle()",
		new: "false",
	},
	{
		breaks: "snib: a PostgreSQL server that hangs does not keep snib from ending",
		file:   "cmd/snib/internal/backend/postgres.go", run: "TestPostgresHangs", pkg: "cmd/snib",
		old: "case <-time.After(time.Second):",
		new: "case <-time.After(time.Hour):",
	},
	{
		breaks: "pglock: the user's limit for idle transactions ends no request",
		file:   "pglock/query.go", run: "TestRows/StalledInTransaction",
		old: "		case c == lockNotAvailable, c == queryCanceled, c == idleInTransaction:",
		new: "		case c == lockNotAvailable, c == queryCanceled:",
	},
	{
		breaks: "pglock: a listener whose connections are cut again and again comes back soon",
		file:   "pglock/listen.go", run: "TestListenerReconnects",
		old: "		case wasConnected:\n",
		new: "		case false && wasConnected:\n",
	},
	{
		breaks: "pglock: a request that was given up, and is executed late, is removed",
		file:   "pglock/acquire.go", run: "TestConformance/Stall/GivenUp",
		old: "if err != nil || a.late {", new: "if err != nil {",
	},
	{
		breaks: "pglock: a disk that fails is an outage",
		file:   "pglock/error.go", run: "TestRows/DiskError",
		old: `"53", "58", "08"`,
		new: `"53", "08"`,
	},
}
