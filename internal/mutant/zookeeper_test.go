package mutant

// zookeeperMutants are the mutants of zklock.
var zookeeperMutants = []mutant{
	{
		guarantee: "one kind at a time", pkg: "zklock",
		in:    "judge",
		old:   "if other := last(func(c contender) bool { return !c.sameKind(me) }); other != nil {",
		new:   "if other := last(func(c contender) bool { return false }); other != nil {",
		tests: "TestJudge",
	},
	{
		guarantee: "LockDelay", pkg: "zklock",
		in:    "lease.loseWithSession",
		old:   "driver.Now().Add(l.req.LockDelay))",
		new:   "driver.Instant{})",
		tests: "TestLockDelayWithoutConnection",
	},
	{
		guarantee: "renewed together", pkg: "zklock",
		in:    "Driver.renewAll",
		old:   "start, err := s.renew(ctx, leases)",
		new:   "start, err := s.renew(ctx, nil)",
		tests: "TestManyHolds",
	},
	{
		guarantee: "the hold ends first", pkg: "zklock",
		in:    "lease.newHandle",
		old:   "TTL: l.s.leaseTTL()",
		new:   "TTL: 3 * l.s.leaseTTL()",
		tests: "TestLockerKnowsFirst",
	},
	{
		guarantee: "tokens increase", pkg: "zklock",
		in:    "attempt.grant",
		old:   "zxid: a.stat.Czxid,",
		new:   "zxid: int64(a.solePos.seq) + 1,",
		tests: "TestFolderComesAgain",
	},
	{
		guarantee: "no herd", pkg: "zklock",
		in:    "judge",
		old:   "return verdict{watch: ahead[len(ahead)-1].node}, nil",
		new:   "return verdict{watch: ahead[0].node}, nil",
		tests: "TestNoHerd",
	},
	{
		guarantee: "nothing is left", pkg: "zklock",
		in:    "attempt.create",
		old:   "} else if a.creation.isRejected() {",
		new:   "} else {",
		tests: "TestCreateGivenUp",
	},
	{
		guarantee: "outages are waited for", pkg: "zklock",
		in:    "attempt.shouldRetry",
		old:   "time.Since(a.disconnectedSince) < a.req.RetryLimit()",
		new:   "time.Since(a.disconnectedSince) < a.req.RetryLimit()/2",
		tests: "TestRetryTimeout",
	},
	{
		guarantee: "a new session", pkg: "zklock",
		in:    "attempt.acquire",
		old:   "errors.Is(err, errNodeGone), errors.Is(err, zk.ErrSessionExpired) && (a.wasQueued || a.shouldRetry()):",
		new:   "errors.Is(err, errNodeGone):",
		tests: "TestExpiredWhileWaiting",
	},
	{
		guarantee: "outages end waits", pkg: "zklock",
		in:    "session.silentSince",
		old:   "return s.silentFrom",
		new:   "return time.Now()",
		tests: "TestSilence",
	},
	{
		guarantee: "wanted", pkg: "zklock",
		in:    "lease.isFollowed",
		old:   "return i >= 0 && i < len(queue)-1",
		new:   "return i > 0",
		tests: "TestWanted",
	},
	{
		guarantee: "absurd times", pkg: "zklock",
		in:    "decode",
		old:   "i.Kept = min(i.Kept, maxKept)",
		new:   "",
		tests: "TestDistantEnd", testsIn: "cmd/snib",
	},
}
