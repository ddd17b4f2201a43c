//go:build mutants

package mutant

// coreSafetyMutants break what the core promises when the store ends a lease, hangs, or is
// unavailable.
var coreSafetyMutants = []mutant{
	{
		breaks: "driver/fault: a grant that meets the end of the caller's context is released",
		file:   "driver/fault/fault.go", run: "TestGrantAfterTheEnd",
		old: "	if err == nil && ctx.Err() != nil {", new: "	if false {",
	},
	{
		breaks: "the lease of a hold that was lost does not last with its session",
		file:   "lock.go", run: "TestLostLeaseOfSession",
		old: "	h.releaseAtExpiry()\n", new: "",
	},
	{
		breaks: "the lease of a hold that was lost lasts for its TTL and the delay, also in a session",
		file:   "lock.go", run: "TestLostLeaseOfSession/Delay",
		old: "le.confirmedAt.Add(le.ttl + h.locker.conf.lockDelay)", new: "le.confirmedAt.Add(le.ttl)",
	},
	{
		breaks: "what an owner holds again is not released with its lost hold",
		file:   "lock.go", run: "TestLostLeaseOfOwner",
		old: "if !ended && !c.hasOwnerHold(le.owner, le.name) {", new: "if !ended {",
	},
	{
		breaks: "a lease is handed over only if the store has just confirmed it",
		file:   "queue.go", run: "TestStaleHandOver",
		old: "case now.Sub(le.confirmedAt) < confirmInterval:", new: "case true:",
	},
	{
		breaks: "a lease that the store does not confirm goes back to the store",
		file:   "queue.go", run: "TestConfirmation",
		old: "return h.cause == nil && le.confirmedAt != before", new: "return h.cause == nil && (true || le.confirmedAt != before)",
	},
	{
		breaks: "one confirmation serves all hand-overs of an interval",
		file:   "queue.go", run: "TestConfirmation",
		old: "case now.Sub(le.confirmedAt) < confirmInterval:", new: "case false:",
	},
	{
		breaks: "a request that may wait survives a short outage",
		file:   "request.go", run: "TestOutage",
		old: "if !shouldRetry || ctx", new: "if shouldRetry = false; !shouldRetry || ctx",
	},
	{
		breaks: "an outage does not keep an acquisition for ever",
		file:   "driver/driverkit/outage.go", run: "TestOutage$", pkg: ".",
		old: "time.Since(o.began) >= driver.RetryTimeout", new: "time.Since(o.began) < 0",
	},
	{
		breaks: "the cause of an outage is not followed by a deadline that the caller did not set",
		file:   "request.go", run: "TestCauseOfNoAnswer",
		old: "return strings.TrimRight(cause, \":; \")", new: "return cause[:0] + text",
	},
	{
		breaks: "a store that is full is waited for, as a holder is",
		file:   "driver/driverkit/outage.go", run: "TestOutage$/Full", pkg: ".",
		old: "	case full:\n		o.began = sentAt\n", new: "",
	},
	{
		breaks: "those who wait for an overloaded store do not keep it overloaded",
		file:   "driver/driverkit/outage.go", run: "TestPause",
		old: "min(2*o.pause, longest)", new: "min(firstPause, longest)",
	},
	{
		breaks: "a wait that ends during an outage does not say that the lock is held",
		file:   "request.go", run: "TestOutage$",
		old: "if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrHeld)", new: "if !errors.Is(err, ErrHeld)",
	},
	{
		breaks: "a local waiter learns of the outage that it waits for",
		file:   "request.go", run: "TestOutageBehindAnother",
		old: "		l.core.setOutage(q, err)\n", new: "",
	},
	{
		breaks: "a request that must not wait is bounded",
		file:   "request.go", run: "TestNoAnswer",
		old: "withLazyTimeout(ctx, driver.AnswerTimeout)", new: "withLazyTimeout(ctx, time.Hour)",
	},
	{
		breaks: "nobody is told of a cancellation that nobody made",
		file:   "request.go", run: "TestForeignContextError",
		old: "return noAnswerError(driver.AnswerTimeout)", new: "return err",
	},
	{
		breaks: "a deadline ends with its parent",
		file:   "deadline.go", run: "TestNoAnswer|TestDeadline",
		old: "context.WithDeadline(d.parent, d.deadline)", new: "context.WithDeadline(context.Background(), d.deadline)",
	},
	{
		breaks: "core: the hold of an owner is confirmed when another request of that owner has failed",
		file:   "locker.go", run: "TestOwnerLosesByGivingUp",
		old: "		if l.conf.owner != \"\" {\n			c.confirmOwnerHold",
		new: "		if l.conf.owner == \"\" {\n			c.confirmOwnerHold",
	},
}
