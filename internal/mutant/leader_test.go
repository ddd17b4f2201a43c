//go:build mutants

package mutant

var leaderMutants = []mutant{
	{
		breaks: "the context of a leader ends before another one leads",
		file:   "leader/leader.go", run: "TestLoss",
		old: "failure = c.fn(term, lock)", new: "failure = c.fn(ctx, lock)",
	},
	{
		breaks: "who has lost the leadership campaigns again, whatever its function returned",
		file:   "leader/leader.go", run: "TestLoss",
		old: "lost = lock.Validity() <= 0", new: "lost = false",
	},
	{
		breaks: "an error of a leader's function ends Run",
		file:   "leader/leader.go", run: "TestEnds",
		old: "case led && (lost || failure == nil):", new: "case led && (lost || true):",
	},
	{
		breaks: "an error of a leader's function is not taken for one of the campaign",
		file:   "leader/leader.go", run: "TestEnds",
		old: "case led || isPermanent(err):", new: "case isPermanent(err):",
	},
	{
		breaks: "candidates that failed together don't try again together",
		file:   "leader/leader.go", run: "TestStoreGone",
		old: "time.NewTimer(pause/2 + rand.N(pause))", new: "time.NewTimer(pause/2 + rand.N(time.Nanosecond))",
	},
	{
		breaks: "candidates ask a store that is gone more and more rarely",
		file:   "leader/leader.go", run: "TestStoreGone",
		old: "c.pause << min(max(failed-1, 0), maxDoublings)", new: "c.pause << min(max(failed-1, 0), 0)",
	},
	{
		breaks: "candidates find a store soon that is back",
		file:   "leader/leader.go", run: "TestStoreGone",
		old: "min(max(failed-1, 0), maxDoublings)", new: "min(max(failed-1, 0), 2*maxDoublings)",
	},
	{
		breaks: "after a term pauses are short again",
		file:   "leader/leader.go", run: "TestPauses",
		old: "			failed = 0\n", new: "			failed++\n",
	},
	{
		breaks: "that another one leads is no error",
		file:   "leader/leader.go", run: "TestPauses",
		old: "return notElected, nil", new: "return notElected, err",
	},
	{
		breaks: "a candidate stops at once, also in a pause",
		file:   "leader/leader.go", run: "TestStops",
		old: "	case <-ctx.Done():\n		return false", new: "	case <-make(chan struct{}):\n		return false",
	},
	{
		breaks: "a candidate does not campaign for ever with a Locker that is closed",
		file:   "leader/leader.go", run: "TestRefuses",
		old: " || errors.Is(err, snib.ErrClosed)", new: "",
	},
	{
		breaks: "what several can hold has no leader",
		file:   "leader/leader.go", run: "TestCurrent",
		old: "case status.Shared || status.Slots > 0:", new: "case false:",
	},
	{
		breaks: "a tick is run once by hosts whose clocks differ",
		file:   "cron/cron.go", run: "TestOncePerTick",
		old: "locker.With(snib.NoWait(), snib.MinHold(minHold))", new: "locker.With(snib.NoWait())",
	},
	{
		breaks: "a tick is run once by schedulers whose clocks differ",
		file:   "cron/cron.go", pkg: "cron/gocrondist", run: "TestLocker",
		old: "locker.With(snib.NoWait(), snib.MinHold(minHold))", new: "locker.With(snib.NoWait())",
	},
	{
		breaks: "a tick is run once by processes whose clocks differ",
		file:   "cron/cron.go", pkg: "examples/scheduled-job", run: "TestOncePerTick",
		old: "locker.With(snib.NoWait(), snib.MinHold(minHold))", new: "locker.With(snib.NoWait())",
	},
	{
		breaks: "a tick that another host runs is not waited for",
		file:   "cron/cron.go", run: "TestOncePerTick",
		old: "locker.With(snib.NoWait(), snib.MinHold(minHold))", new: "locker.With(snib.MinHold(minHold))",
	},
	{
		breaks: "a tick is not run when the store answers long after it",
		file:   "cron/cron.go", run: "TestLate/Run",
		old: "func() { cancel(ErrLate) })", new: "func() {})",
	},
	{
		breaks: "a tick is not taken when the store answers long after it",
		file:   "cron/cron.go", run: "TestLate/Take",
		old: "context.WithTimeoutCause(ctx, r.minHold, ErrLate)", new: "context.WithCancel(ctx)",
	},
	{
		breaks: "a job of a tick has all the time that it wants",
		file:   "cron/cron.go", run: "TestRun",
		old: "		if !late.Stop() {\n			return ErrLate\n		}\n", new: "",
	},
	{
		breaks: "a candidate that others keep waiting does not campaign more and more rarely",
		file:   "leader/leader.go", run: "TestPauses",
		old: "case outcome == notElected && err != nil:", new: "case outcome == notElected:",
	},
	{
		breaks: "an error of a job is not taken for a tick that another host runs",
		file:   "cron/cron.go", run: "TestRun",
		old: "if !ran && errors.Is(err, snib.ErrHeld) {", new: "if errors.Is(err, snib.ErrHeld) {",
	},
	{
		breaks: "a scheduler gives the lock of a job up",
		file:   "cron/gocrondist/gocrondist.go", run: "TestUnlock",
		old: "return h.lock.Release()", new: "return nil",
	},
	{
		breaks: "an elector that has resigned does not lead",
		file:   "cron/gocrondist/gocrondist.go", run: "TestElector",
		old: "if lock == nil || lock.Validity() <= 0 {", new: "if lock == nil {",
	},
	{
		breaks: "a claim in SQL keeps the write of a client out that was paused",
		file:   "fence/mark.go", pkg: "examples/paused-client", run: "TestScenes/sqlite",
		old: "	if err = g.Do(ctx, m, nil); err != nil {\n", new: "	if err = m.Check(); err != nil {\n",
	},
	{
		breaks: "a claim in Redis keeps the write of a client out that was paused",
		file:   "redislock/redisfence/redisfence.go", pkg: "examples/paused-client", run: "TestScenes/redis",
		old: "	if _, err = handle.Eval(ctx, claimScript, nil, nil); err != nil {\n", new: "	if err != nil {\n",
	},
	{
		breaks: "writes in SQL are checked without a claim, too",
		file:   "fence/sql.go", pkg: "examples/paused-client", run: "TestScenes/sqlite",
		old: "	return m.After(last)\n}", new: "	return nil\n}\n\n// name returns",
	},
	{
		breaks: "who has lost the leadership with the server campaigns again",
		file:   "leader/leader.go", pkg: "redislock", run: "TestLeadersOutliveTheServer",
		old: "		return served, err\n", new: "		return finished, err\n",
	},
	{
		breaks: "no tick is run by two hosts, with a real server as well",
		file:   "cron/cron.go", pkg: "redislock", run: "TestTicksOutliveTheServer",
		old: "locker.With(snib.NoWait(), snib.MinHold(minHold))", new: "locker.With(snib.MinHold(time.Millisecond))",
	},
}
