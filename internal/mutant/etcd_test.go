package mutant

// etcdMutants are the mutants of etcdlock.
var etcdMutants = []mutant{
	{
		guarantee: "strangers count", pkg: "etcdlock",
		in:    "parseQueue",
		old:   "e, _ := parseEntry(kv)\nq = append(q, e)",
		new:   "if e, _ := parseEntry(kv); e.info.Format == 1 {\nq = append(q, e)\n}",
		tests: "TestStrangers",
	},
	{
		guarantee: "MinHold", pkg: "etcdlock",
		in:    "lease.tryRelease",
		old:   "value, minHold := l.value(), l.info.MinHold",
		new:   "value, minHold := l.value(), int64(l.s.id)",
		tests: "TestMinHoldOutlivesProcess",
	},
	{
		guarantee: "released by id", pkg: "etcdlock",
		in:    "Driver.endByID",
		old:   "e.info.ID != id ||",
		new:   "",
		tests: "TestLeaseByID",
	},
	{
		guarantee: "the hold ends first", pkg: "etcdlock",
		in:    "session.deadline",
		old:   "return s.start.Add(s.ttl - s.ttl/drift - margin)",
		new:   "return s.start.Add(s.ttl + time.Second)",
		tests: "TestHungServer",
	},
	{
		guarantee: "losses are told", pkg: "etcdlock",
		in:    "session.receiveEvents",
		old:   "released := ev.Type == mvccpb.Event_DELETE ||",
		new:   "released := ev.Type != mvccpb.Event_DELETE ||",
		tests: "TestManyHolds",
	},
	{
		guarantee: "renewed together", pkg: "etcdlock",
		in:    "session.checkAll",
		old:   "s.d.checkKeys(ctx, leases)",
		new:   "s.d.checkKeys(ctx, leases[:0])",
		tests: "TestRenewalOfMany",
	},
	{
		guarantee: "watches that end", pkg: "etcdlock",
		in:    "session.receiveEvents",
		old:   "if resp.Canceled && (l != nil || resp.WatchId == invalidWatchID) {",
		new:   "if resp.Canceled && resp.WatchId == 0 {",
		tests: "TestWatchEnds",
	},
	{
		guarantee: "tokens increase", pkg: "etcdlock",
		in:    "tokenOf",
		old:   "return uint64(revision) << placeBits",
		new:   "return uint64(revision)",
		tests: "TestBlock",
	},
	{
		guarantee: "waiters wake", pkg: "etcdlock",
		in:    "watchedQueue.watchOnce",
		old:   "timer.Reset(watchCheckInterval)",
		new:   "timer.Reset(time.Hour)",
		tests: "TestDeafWatch",
	},
	{
		guarantee: "late requests", pkg: "etcdlock",
		in:    "attempt.deleteKey",
		old:   "err != nil || a.mayPutLater {",
		new:   "err != nil {",
		tests: "TestLateRequest",
	},
	{
		guarantee: "stated assumptions", pkg: "etcdlock",
		in:    "Driver.Info",
		old:   `"the members' clocks run at the rate of the clients'",`,
		new:   `"the members' clocks run at the rate of the clients'", "nobody pulls the plug",`,
		tests: "TestAssumptionsStated", testsIn: "cmd/sniblab/internal/nemesis",
	},
	{
		guarantee: "outages end waits", pkg: "etcdlock",
		in:    "session.failingSince",
		old:   "return s.failing",
		new:   "return time.Now()",
		tests: "TestSilence",
	},
}
