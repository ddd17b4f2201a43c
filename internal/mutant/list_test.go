//go:build mutants

package mutant

// A mutant is one change that breaks one guarantee.
type mutant struct {
	breaks   string // the guarantee
	file     string // below the root
	old, new string // old stands in the file once
	pkg      string // the folder whose tests must notice; the file's if empty
	run      string // the tests, as for go test -run
	race     bool   // only the race detector notices
}

var mutants = []mutant{
	{
		breaks: "the holder is told before the store gives the lock away",
		file:   "keeper.go", run: "TestHungDriver|TestKeeper",
		old: "le.deadline = start.Add(le.ttl - le.ttl/drift - min(margin, le.ttl/10))",
		new: "le.deadline = start.Add(le.ttl)",
	},
	{
		breaks: "a renewal counts from when it was sent",
		file:   "keeper.go", run: "TestRenewalCountsFromSend",
		old: "le.extend(answer.Start)",
		new: "le.extend(now)",
	},
	{
		breaks: "a late answer does not revive",
		file:   "keeper.go", run: "TestRenewalNeverRevives",
		old: "			over = append(over, c.lose(le, le.overdue(now)))\n			continue",
		new: "			if !le.renewing {\n				over = append(over, c.lose(le, le.overdue(now)))\n				continue\n			}\n			break",
	},
	{
		breaks: "a hanging renewal does not keep the others waiting",
		file:   "keeper.go", run: "TestHungBatch",
		old: "maxRenewers = 8", new: "maxRenewers = 1",
	},
	{
		breaks: "a hanging renewal does not delay the loss",
		file:   "keeper.go", run: "TestHung",
		old: "		go c.renew()", new: "		c.mu.Unlock()\n		c.renew()\n		c.mu.Lock()",
	},
	{
		breaks: "a failed renewal is tried again",
		file:   "keeper.go", run: "TestRenewalRetries",
		old: "le.renewAt = now.Add(max(le.deadline.Left(now)/5, 10*time.Millisecond))",
		new: "le.renewAt = le.deadline",
	},
	{
		breaks: "a missing answer is no success",
		file:   "keeper.go", run: "TestMissingAnswers",
		old: "if err == nil && answer.Start.IsZero() {", new: "if false {",
	},
	{
		breaks: "holds are renewed",
		file:   "keeper.go", run: "TestKeeper",
		old: "if !le.renewing && le.renewAt.Before(le.due) {", new: "if false {",
	},
	{
		breaks: "renewals are batched",
		file:   "keeper.go", run: "TestRenewalsAreBatched",
		old: "maxBatch = 128", new: "maxBatch = 1",
	},
	{
		breaks: "a refused renewal ends the hold",
		file:   "keeper.go", run: "TestStoreSaysLost",
		old: "	if errors.Is(err, ErrLost) {\n		c.gone(le, err)", new: "	if false {\n		c.gone(le, err)",
	},
	{
		breaks: "the end of a session ends its holds",
		file:   "keeper.go", run: "TestSessionLoss",
		old: "		go c.listen(le, lost)", new: "		_ = lost",
	},
	{
		breaks: "a hold that ended tells its listener",
		file:   "keeper.go", run: "TestSessionLoss",
		old: "	if le.done != nil {\n		close(le.done)\n	}", new: "",
	},
	{
		breaks: "a grant that comes after its end is no hold",
		file:   "locker.go", run: "TestLateGrant",
		old: "	if le.deadline.Reached(now) {", new: "	if false {",
	},
	{
		breaks: "a grant that is not used is given back",
		file:   "locker.go", run: "TestLateGrant|TestTokenRegression",
		old: "	if err != nil && granted != nil && !c.isOwned(req.Owner, name) {", new: "	if false {",
	},
	{
		breaks: "a grant without a token is no success",
		file:   "locker.go", run: "TestGrantWithoutSubstance",
		old: "(grant.Token == 0 && l.core", new: "(false && l.core",
	},
	{
		breaks: "a token that went back is reported",
		file:   "locker.go", run: "TestTokenRegression",
		old: "	return token <= seen\n", new: "	return token < seen\n",
	},
	{
		breaks: "release works after the context of its acquire has ended",
		file:   "locker.go", run: "TestHoldOutlives|TestReleaseTimeout",
		old: "within(timeout)", new: "within(0)",
	},
	{
		breaks: "release is bounded",
		file:   "locker.go", run: "TestReleaseTimeout",
		old: "within(timeout)", new: "within(100 * timeout)",
	},
	{
		breaks: "a deadline without a timer is over in time",
		file:   "deadline.go", run: "TestDeadlineIsAContext",
		old: "	case !time.Now().Before(d.at):\n		d.err = context.DeadlineExceeded\n", new: "",
	},
	{
		breaks: "why a deadline is over does not change",
		file:   "deadline.go", run: "TestDeadlineIsAContext",
		old: "	switch {\n	case d.err != nil:\n", new: "	switch {\n",
	},
	{
		breaks: "a deadline that is over is done",
		file:   "deadline.go", run: "TestDeadlineIsAContext",
		old: "		stop(d.err)\n", new: "		_ = stop\n",
	},
	{
		breaks: "the end of a deadline wakes who waits for it",
		file:   "deadline.go", run: "TestDeadlineWakes",
		old: "		d.stop()\n", new: "		_ = d.stop\n",
	},
	{
		breaks: "the hold outlives the context of its acquire",
		file:   "lock.go", run: "TestHoldOutlives",
		old: "l.hold.open(context.WithoutCancel(l.parent))", new: "l.hold.open(l.parent)",
	},
	{
		breaks: "release counts once",
		file:   "lock.go", run: "TestReentrant",
		old: "	l.releasing.Do(func() {", new: "	func(f func()) { f() }(func() {",
	},
	{
		breaks: "the context ends before Lost is closed",
		file:   "lock.go", run: "TestContextEndsBeforeLost",
		old: "		s.cancel(e.cause)", new: "		defer s.cancel(e.cause)",
	},
	{
		breaks: "the context ends before Lost is found closed",
		file:   "lock.go", run: "TestContextEndsBeforeLost",
		old: "		if h.told {", new: "		if h.isLost() {",
	},
	{
		breaks: "a released context ends",
		file:   "lock.go", run: "TestContextAfterRelease|TestReentrant",
		old: "		l.released.Store(true)", new: "		l.scope.Store(nil)",
	},
	{
		breaks: "one goroutine of a process asks the store",
		file:   "queue.go", run: "TestOneContender",
		old: "	case g == nil:\n", new: "	case g != nil && !noWait:\n		c.mu.Unlock()\n		return nil, nil, nil\n	case g == nil:\n",
	},
	{
		breaks: "the queue is first in first out",
		file:   "queue.go", run: "TestOneContender",
		old: "	w := g.queue.first\n	if !w.locker", new: "	w := g.queue.last\n	if !w.locker",
	},
	{
		breaks: "a waiter that is used again has its new options",
		file:   "queue.go", run: "TestWaiterIsUsedAgain",
		old: "g.spare, w.locker = w.next, l", new: "g.spare = w.next",
	},
	{
		breaks: "closing ends the waits in the process",
		file:   "queue.go", run: "TestClose",
		old: "		close(w.ready)\n", new: "",
	},
	{
		breaks: "the next hold has the next token",
		file:   "queue.go", run: "TestLocalTokens",
		old: "	le.next++\n", new: "",
	},
	{
		breaks: "a lease hands out no more tokens than it reserved",
		file:   "queue.go", run: "TestLocalTokens",
		old: "le.next >= le.end || le.deadline", new: "le.deadline",
	},
	{
		breaks: "a run ends when another process waits",
		file:   "queue.go", run: "TestLocalRunEnds",
		old: "return le.run.length < maxRun && now.Sub(le.run.wantedAt) < maxRunTime", new: "return true",
	},
	{
		breaks: "holds that the store must know of are not handed over",
		file:   "queue.go", run: "TestNoLocalHandOver",
		old: "!le.hold.locker.conf.handsOver()", new: "false",
	},
	{
		breaks: "a hold is not handed over to another TTL",
		file:   "queue.go", run: "TestNoLocalHandOver",
		old: " && c.ttl == had.ttl", new: "",
	},
	{
		breaks: "a waiter that gives up passes the turn on",
		file:   "queue.go", run: "TestTurnComesTooLate",
		old: "		if h == nil {\n			c.pass(g)\n		}", new: "",
	},
	{
		breaks: "a waiter that gives up leaves the queue",
		file:   "queue.go", run: "TestWaitErrors|TestCancelRaces",
		old: "		g.queue.remove(w)\n", new: "",
	},
	{
		breaks: "a lost hold passes the turn on",
		file:   "keeper.go", run: "TestTurnIsPassedOn",
		old: "		c.pass(le.gate)\n", new: "",
	},
	{
		breaks: "a failed acquire passes the turn on",
		file:   "locker.go", run: "TestTurnIsPassedOn",
		old: "if g != nil && (err != nil || !l.conf.exclusive()) {", new: "if g != nil && !l.conf.exclusive() {",
	},
	{
		breaks: "fair waiters stand in the store's queue",
		file:   "locker.go", run: "TestFair",
		old: "	if l.conf.fair || l.conf.owner", new: "	if l.conf.owner",
	},
	{
		breaks: "an owner that asks again gets the same hold",
		file:   "owner.go", run: "TestOwnerShares|TestOwnerIsIdempotent",
		old: "	h.count++\n	return h, nil", new: "	return h, nil",
	},
	{
		breaks: "an acquisition that is given up does not free what its owner holds",
		file:   "locker.go", run: "TestOwnerGivesUpOne",
		old: " && !c.isOwned(req.Owner, name) {", new: " {",
	},
	{
		breaks: "a local run ends for those who stand beside its queue",
		file:   "queue.go", run: "TestLocalRunEndsForThoseOutside",
		old: " && le.hold.locker.core.outside[le.name] == 0", new: "",
	},
	{
		breaks: "tokens are reserved for those who can use them",
		file:   "queue.go", run: "TestReservesNoTokens",
		old: "		if !w.locker.conf.follows(&l.conf) {", new: "		if false {",
	},
	{
		breaks: "the next holder begins when the contexts of the last one have ended",
		file:   "queue.go", run: "TestHandOverAfterContextsEnd",
		old: "	if ending {\n", new: "	if false {\n",
	},
	{
		breaks: "a slow trace delays nothing",
		file:   "keeper.go", run: "TestSlowTrace",
		old: "			go func() {\n				for _, t := range tell {", new: "			func() {\n				for _, t := range tell {",
	},
	{
		breaks: "the cause of a context is that of its hold",
		file:   "lock.go", run: "TestReleaseAndCauseAgree",
		old: "		if h.isLost() { // who ended", new: "		if false { // who ended",
	},
	{
		breaks: "leaked locks of several names are found",
		file:   "locks.go", run: "TestLeakedLocks",
		old: "losing.Do(func() { close(lost) })", new: "losing.Do(func() { close(lost); _ = ls })",
	},
	{
		breaks: "durations without end do not overflow",
		file:   "driver/clock.go", pkg: ".", run: "TestEndless",
		old: "	if b > 0 && a > math.MaxInt64-b {", new: "	if b > 0 && a > math.MaxInt64 {",
	},
	{
		breaks: "a nested acquire does not wait for itself",
		file:   "reentry.go", run: "TestNested",
		old: "	for ; list != nil; list = list.next {", new: "	for ; list != nil && list.next != nil; list = list.next {",
	},
	{
		breaks: "the upgrade of a shared hold does not wait for itself",
		file:   "reentry.go", run: "TestReentryChecks",
		old: "	case had.shared && !c.shared:", new: "	case false:",
	},
	{
		breaks: "carried holds that have ended are none",
		file:   "reentry.go", run: "TestCarriedHolds",
		old: "		if alive {", new: "		if alive || true {",
	},
	{
		breaks: "a carried hold of another store is none",
		file:   "reentry.go", run: "TestCarriedHolds",
		old: "h.locker.core != c || ", new: "",
	},
	{
		breaks: "Do tells of a loss that its body did not notice",
		file:   "do.go", run: "TestDo",
		old: "if errors.Is(lost, ErrLost) && !errors.Is(err, ErrLost) {", new: "if false && lost != nil && errors.Is(lost, ErrLost) {",
	},
	{
		breaks: "locks of several names are all or none",
		file:   "locks.go", run: "TestAcquireAll",
		old: "errors.Join(err, ls.release())", new: "err",
	},
	{
		breaks: "locks of several names are taken in one order",
		file:   "locks.go", run: "TestAcquireAllOrder",
		old: "	names = slices.Compact(slices.Sorted(slices.Values(names)))\n", new: "	_ = slices.Compact[[]string]\n",
	},
	{
		breaks: "the loss of one name ends the wait for the others",
		file:   "locks.go", run: "TestAcquireAll",
		old: "		waiting.endWith(lock.hold)\n", new: "",
	},
	{
		breaks: "memlock grants no token twice",
		file:   "memlock/memlock.go", pkg: ".", run: "TestLocalTokens|TestAcquireAndRelease",
		old: "driver.NextToken(s.last, time.Now())", new: "driver.NextToken(s.last, time.Now()) / 2 * 2",
	},
	{
		breaks: "the lease clock counts sleep",
		file:   "driver/clock_linux.go", run: "TestBootCache$",
		old: "return (wall - passed - r.apart).Abs() <= tolerance", new: "return true",
	},
	{
		breaks: "the lease clock counts a sleep while it is read",
		file:   "driver/clock_linux.go", run: "TestBootCache$",
		old: "after, _ := clocks()", new: "after, wall := clocks()",
	},
	{
		breaks: "the lease clock counts a sleep that the wall clock hides",
		file:   "driver/clock_linux.go", run: "TestBootCacheAge",
		old: " || passed-r.asked >= maxAge", new: "",
	},
	{
		breaks: "the lease clock is not late after preemption",
		file:   "driver/clock_linux.go", run: "TestBootCache$",
		old: "if after-passed <= tolerance {", new: "if true {",
	},
	{
		breaks: "the lease clock is not early",
		file:   "driver/clock_linux.go", run: "TestBootCache$",
		old: "booted - after, apart", new: "booted - passed, apart",
	},
	{
		breaks: "the lease clock is the boot clock",
		file:   "driver/clock_linux.go", run: "TestNowIsTheBootClock",
		old: "return instant(passed + last.ahead)", new: "return instant(passed)",
	},
	{
		breaks: "the lease clock relies on no reading from a bubble",
		file:   "driver/clock_linux.go", run: "TestNowBesideOldBubble",
		old: "passed < r.asked || ", new: "",
	},
	{
		breaks: "the boot clock is asked rarely",
		file:   "driver/clock_linux.go", run: "TestBootCacheAsks",
		old: "		c.last.Store(&bootReading{ahead: booted - after, apart: wall - passed, asked: passed})\n", new: "		_ = wall\n",
	},
	{
		breaks: "a lease ends by the clock that says so first",
		file:   "driver/clock.go", run: "TestTwoReadings",
		old: "return now.mono >= i.mono || now.wall >= i.wall", new: "return now.mono >= i.mono",
	},
	{
		breaks: "await returns the cause of its context",
		file:   "driver/await.go", run: "TestAwait",
		old: "		case <-ctx.Done():\n			return none, context.Cause(ctx)", new: "		case <-ctx.Done():\n			return none, ctx.Err()",
	},
	{
		breaks: "a hint shortens the sleep",
		file:   "driver/await.go", run: "TestAwait",
		old: "		case <-hints:\n", new: "",
	},
	{
		breaks: "tokens go on when the clock goes back",
		file:   "driver/token.go", run: "TestNextToken",
		old: "max(last+1, uint64(max(clock.UnixMicro(), 0)))", new: "uint64(max(clock.UnixMicro(), 0)) + 0*last",
	},
	{
		breaks: "sqlite: the lock of a killed process is free at once",
		file:   "sqlitelock/queue.go", run: "TestKilledHolder",
		old: "return late || !s.locked(l.byte)", new: "return late",
	},
	{
		breaks: "sqlite: a stopped process loses its lock at the end of its TTL",
		file:   "sqlitelock/queue.go", run: "TestStoppedHolder",
		old: "return late || !s.locked(l.byte)", new: "return !s.locked(l.byte)",
	},
	{
		breaks: "sqlite: an inherited file keeps the lock beyond the TTL of a dead process",
		file:   "sqlitelock/queue.go", run: "TestInheritOutlives",
		old: "late && s.locked(l.process)", new: "late",
	},
	{
		breaks: "sqlite: an inherited file does not keep the lock of a stopped process",
		file:   "sqlitelock/queue.go", run: "TestInheritStopped",
		old: "late && s.locked(l.process)", new: "false",
	},
	{
		breaks: "sqlite: a detached lease outlives its process",
		file:   "sqlitelock/queue.go", run: "TestDetached|TestConformance/Close",
		old: "	case modeDetached, modeKept:", new: "	case modeKept:",
	},
	{
		breaks: "sqlite: the place of a killed waiter is skipped",
		file:   "sqlitelock/queue.go", run: "TestKilledWaiter",
		old: "		if t.d.side.locked(w.byte) {", new: "		if true {",
	},
	{
		breaks: "sqlite: a stopped waiter is passed",
		file:   "sqlitelock/queue.go", run: "TestStoppedWaiter",
		old: "t.now-w.called >= int64(patience)", new: "false",
	},
	{
		breaks: "sqlite: a lease of an earlier boot is over",
		file:   "sqlitelock/write.go", run: "TestOtherBoot",
		old: "	case m.boot == t.d.boot && m.live == t.d.live:", new: "	case m.boot != \"\":",
	},
	{
		breaks: "sqlite: locks exclude one another",
		file:   "sqlitelock/queue.go", run: "TestProcesses|TestConformance/Exclusion",
		old: "		return r.leases == 0", new: "		return true",
	},
	{
		breaks: "sqlite: tokens are stored with the grant",
		file:   "sqlitelock/write.go", run: "TestClockBehind",
		old: "	t.meta.counter = int64(driver.NextToken(uint64(t.meta.counter), time.Now()))\n", new: "	t.meta.counter = time.Now().UnixMicro()\n",
	},
	{
		breaks: "sqlite: a renewal does not revive",
		file:   "sqlitelock/lease.go", run: "TestConformance/Renew",
		old: "	n, err := t.db.exec(`UPDATE leases SET deadline = ?\n		WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND deadline > ?`,", new: "	n, err := t.db.exec(`UPDATE leases SET deadline = ?\n		WHERE name = ? AND token = ? AND owner = ? AND mode <> ? AND 0 < ?`,",
	},
	{
		breaks: "sqlite: who waits is woken, and does not poll",
		file:   "sqlitelock/acquire.go", run: "TestConformance/Wait",
		old: "		a.d.side.watch(at, a.hint)\n", new: "		_ = at\n",
	},
	{
		breaks: "sqlite: a cancelled wait leaves nothing",
		file:   "sqlitelock/acquire.go", run: "TestConformance/(Wait|Cancel)",
		old: "		a.withdraw(l)\n", new: "",
	},
	{
		breaks: "sqlite: a file that was replaced is noticed",
		file:   "sqlitelock/write.go", run: "TestReplaced",
		old: "return first(d.side.intact, func() error { return sameFile(d.file, d.path) })", new: "return nil",
	},
	{
		breaks: "sqlite: nobody sees that the database is locked",
		file:   "sqlitelock/sqlite.go", run: "TestBusyDatabase",
		old: "return pause(count) && !closing()", new: "return false",
	},
	{
		breaks: "sqlite: network file systems are refused",
		file:   "sqlitelock/os_linux.go", run: "TestNetwork",
		old: "	case unix.NFS_SUPER_MAGIC:\n", new: "	case 1:\n",
	},
	{
		breaks: "the slot is that of Redis",
		file:   "redislock/keys.go", run: "TestSlots",
		old: "crc = crc<<1 ^ 0x1021",
		new: "crc = crc<<1 ^ 0x8005",
	},
	{
		breaks: "all keys of a lock lie in one slot",
		file:   "redislock/keys.go", run: "TestKeys",
		old: "\tcase strings.Contains(name, \"}\"):",
		new: "\tcase false:",
	},
	{
		breaks: "a name's hash tag decides its slot",
		file:   "redislock/keys.go", run: "TestKeys",
		old: "\tcase hashTag(name) != name:",
		new: "\tcase false:",
	},
	{
		breaks: "no lock has another one's key",
		file:   "redislock/keys.go", run: "TestKeysApart",
		old: "\tif strings.HasPrefix(name, \"snib.\") {",
		new: "\tif false {",
	},
	{
		breaks: "only keys of ours are taken for them",
		file:   "redislock/keys.go", run: "TestKeys|FuzzKeys",
		old: "return name, name != \"\" && keysOf(name)[1][len(\"snib.r:\"):] == rest",
		new: "return name, name != \"\"",
	},
	{
		breaks: "the tag of a slot is the least number in it",
		file:   "redislock/keys.go", run: "TestKeys",
		old: "least[slot] < 0",
		new: "least[slot] != n",
	},
	{
		breaks: "a release whose answer was lost is no loss",
		file:   "redislock/acquire.go", run: "TestLostAnswers/Close",
		old: "if o.doubt && answer == \"l\" {",
		new: "if false {",
	},
	{
		breaks: "a release whose answer was lost is no loss, also if others came to wait",
		file:   "redislock/lease.go", run: "TestLostAnswers/Close",
		old: "\t\tall.doubt = quick.doubt\n",
		new: "",
	},
	{
		breaks: "an acquisition whose answer was lost is granted again",
		file:   "redislock/script.go", run: "TestLostAnswers/Close",
		old: "local answer = v and again(v, owner, mode, ttl, tokens, rest)",
		new: "local answer",
	},
	{
		breaks: "an acquisition whose answer was lost keeps its token",
		file:   "redislock/script.go", run: "TestLostAnswers/Close",
		old: "    token, since, tokens = had.token, had.since, had.tokens\n",
		new: "    token, since, tokens = reserve(tokens), had.since, tokens\n",
	},
	{
		breaks: "a waiter that asks again keeps its place",
		file:   "redislock/script.go", run: "TestLostAnswers|TestTraffic|TestOrder|TestPatience",
		old: "redis.call('ZADD', queue, 'NX', string",
		new: "redis.call('ZADD', queue, string",
	},
	{
		breaks: "a wait that ends is withdrawn",
		file:   "redislock/acquire.go", run: "TestCancelledWaiters|TestLostAnswers/Close",
		old: "return !errors.As(err, &held) && !errors.Is(err, driver.ErrKind)",
		new: "return errors.As(err, &held) && false",
	},
	{
		breaks: "what an earlier round left is withdrawn",
		file:   "redislock/acquire.go", run: "TestNothingLeftOfKindConflict",
		old: "if a.round > 1 || isDoubtful(err) {",
		new: "if isDoubtful(err) {",
	},
	{
		breaks: "Acquire returns when its context ends while the server hangs",
		file:   "redislock/sender.go", run: "TestHungServer$|TestHungServerBounded",
		old: "\tcase <-ctx.Done():\n\t\to.lost",
		new: "\tcase <-make(chan int):\n\t\to.lost",
	},
	{
		breaks: "a connection that hangs is given up",
		file:   "redislock/redislock.go", run: "TestLostAnswers/HangShared",
		old: "o.ConnWriteTimeout = silence",
		new: "o.ConnWriteTimeout = time.Minute",
	},
	{
		breaks: "what MinHold keeps leaves nothing",
		file:   "redislock/script.go", run: "TestNothingLeft$",
		old: "redis.call('PEXPIRE', record, ms) -- and not for as long as the lease would have",
		new: "outlast(record, ms)",
	},
	{
		breaks: "a release passes over dead processes",
		file:   "redislock/script.go", run: "TestDeadWaiters",
		old: "if first == self or r.blind or hears(r) then",
		new: "if true then",
	},
	{
		breaks: "a release passes over who has been silent for too long",
		file:   "redislock/script.go", run: "TestPatience",
		old: "if not r or at(e) + absence < now then",
		new: "if not r then",
	},
	{
		breaks: "the queue is in the order of arrival",
		file:   "redislock/script.go", run: "TestOrder",
		old: "local place = math.max(now, tail and tonumber(tail) + 1 or 0)",
		new: "local place = -now",
	},
	{
		breaks: "readers do not starve a writer",
		file:   "redislock/script.go", run: "TestWriters",
		old: "  if redis.call('EXISTS', queue) == 0 and admits(mode) then",
		new: "  if (mode == 's' or redis.call('EXISTS', queue) == 0) and admits(mode) then",
	},
	{
		breaks: "who waited behind one that gave up goes on",
		file:   "redislock/script.go", run: "TestCancelledWaiters",
		old: "  settle() -- others may have waited for the place that it had\n  if first then stir() end\n",
		new: "",
	},
	{
		breaks: "what was said while nobody listened is made up for",
		file:   "redislock/listen.go", run: "TestCutSubscription",
		old: "\t\t\t\tgo l.d.catchUp(ctx, s.channel)",
		new: "\t\t\t\t_ = l.d.catchUp",
	},
	{
		breaks: "a stranger's release is noticed",
		file:   "redislock/acquire.go", run: "TestUnheardRelease",
		old: "\tcase q.place == \"2\" && (q.left < 0 || after > foreignPoll):",
		new: "\tcase false:",
	},
	{
		breaks: "a subscription goes when nobody needs it",
		file:   "redislock/listen.go", run: "TestTraffic",
		old: "\tdelete(l.open, s.channel)\n\ts.cancel()",
		new: "\tdelete(l.open, s.channel)\n\t_ = s.cancel",
	},
	{
		breaks: "waiting costs few commands",
		file:   "redislock/acquire.go", run: "TestTraffic",
		old: "\tpresence = 5 * time.Second",
		new: "\tpresence = 20 * time.Millisecond",
	},
	{
		breaks: "nothing is granted by a server that has forgotten",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory|TestFailover/Exclusive",
		old: "  if not graceful then return 0 end",
		new: "  if graceful then return 0 end",
	},
	{
		breaks: "a promoted server grants nothing until leases that it does not know are over",
		file:   "redislock/script.go", run: "TestFailover$/Exclusive/true|TestRestartWithMemory",
		old: "    start, unknown = now, math.max(longest, before)",
		new: "    start, unknown = 0, 1",
	},
	{
		breaks: "a server without memory grants nothing until leases of before are over",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory",
		old: "    start, unknown = now - math.max(uptime - 1, 0) * 1000000, 0",
		new: "    start, unknown = 0, 0",
	},
	{
		breaks: "tokens go on after a loss of memory",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory|TestFlush|TestFailover$/Exclusive/true",
		old: "if #won > 0 then\n  local token = math.max(last + 1, now)",
		new: "if #won > 0 then\n  local token = last + 1",
	},
	{
		breaks: "the quick way keeps to failover-grace",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory|TestRestartWithMemory",
		old: "  refused = grace(ttl) > 0\n",
		new: "  refused = false\n",
	},
	{
		breaks: "a replica is asked again until it is promoted",
		file:   "redislock/conn.go", run: "TestNotReady/READONLY",
		old: "\"READONLY\", ",
		new: "",
	},
	{
		breaks: "a master without replicas is asked again",
		file:   "redislock/conn.go", run: "TestNotReady/NOREPLICAS",
		old: "\"NOREPLICAS\", ",
		new: "",
	},
	{
		breaks: "a server that has forgotten a script is told it again",
		file:   "redislock/rueidis.go", run: "TestScriptFlush",
		old: "ok && e.IsNoScript()",
		new: "ok && e.IsNoScript() && false",
	},
	{
		breaks: "a dead replica keeps nobody from working",
		file:   "redislock/rueidis.go", run: "TestCluster",
		old: "len(masters) >= mastersKnownTo(ctx, masters[0])",
		new: "false",
	},
	{
		breaks: "an old Redis is refused",
		file:   "redislock/survey.go", run: "TestOpenRefuses/.*TooOld",
		old: "\tcase !atLeast(info[\"redis_version\"], 6, 2):",
		new: "\tcase false:",
	},
	{
		breaks: "a node of a Cluster is not taken for a single server",
		file:   "redislock/survey.go", run: "TestOpenRefuses/SingleOnCluster",
		old: "\tcase enabled && !isCluster:",
		new: "\tcase enabled && !isCluster && false:",
	},
	{
		breaks: "a single server is not taken for a Cluster",
		file:   "redislock/survey.go", run: "TestOpenRefuses/ClusterOnSingle",
		old: "\tcase conf.topology == cluster && !isCluster:",
		new: "\tcase false:",
	},
	{
		breaks: "a warning is told once",
		file:   "redislock/survey.go", run: "TestWarnings/Cluster",
		old: "\t\t\tif !said[w] {",
		new: "\t\t\tif true {",
	},
	{
		breaks: "a master that may lose what it acknowledged is told of",
		file:   "redislock/survey.go", run: "TestWarnings/NoMinReplicas",
		old: "\tcase n == \"0\":",
		new: "\tcase n == \"0\" && false:",
	},
	{
		breaks: "eviction is told of",
		file:   "redislock/survey.go", run: "TestWarnings/Evicts",
		old: "\tif policy != \"\" && policy != \"noeviction\"",
		new: "\tif false",
	},
	{
		breaks: "errors of connecting say what is wrong",
		file:   "redislock/redislock.go", run: "TestOpenRefuses",
		old: "return nil, explain(err, o)",
		new: "return nil, err",
	},
	{
		breaks: "a prefix is no pattern",
		file:   "redislock/inspect.go", run: "TestListAmongMany|TestStatus$",
		old: "\"snib.[rq]:*\"+escapeGlob(prefix)+\"*\"",
		new: "\"snib.[rq]:*\"+prefix+\"*\"",
	},
	{
		breaks: "List finds names that begin with the prefix",
		file:   "redislock/inspect.go", run: "TestListAmongMany",
		old: "ok && strings.HasPrefix(name, prefix) {",
		new: "ok {",
	},
	{
		breaks: "List does not hold the server up",
		file:   "redislock/inspect.go", run: "TestListAmongMany",
		old: "const scanCount = 1000",
		new: "const scanCount = 1000000",
	},
	{
		breaks: "tokens go on after a loss of memory, for waiters",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory|TestFlush|TestKilledServer",
		old: "local function reserve(tokens)\n  local token = math.max(last + 1, now)",
		new: "local function reserve(tokens)\n  local token = last + 1",
	},
	{
		breaks: "the age of a server is not overestimated",
		file:   "redislock/script.go", run: "TestRestartWithoutMemory",
		old: "math.max(uptime - 1, 0) * 1000000",
		new: "uptime * 1000000",
	},
	{
		breaks: "a grant waits for the disk",
		file:   "pglock/statement.go", run: "TestCrash",
		old: `"{flush}", flush, `,
		new: `"{flush}", noFlush, `,
	},
	{
		breaks: "grab: stored token",
		file:   "pglock/statement.go", run: "TestRows/TokenAheadOfClock",
		old: "greatest(c.now, l.token + 1) AS token FROM",
		new: "c.now AS token FROM",
	},
	{
		breaks: "prune notes first",
		file:   "pglock/statement.go", run: "TestRows/PruneKeepsTokens",
		old: " AND l.token <= (SELECT token FROM {table} WHERE name = '')",
		new: "",
	},
	{
		breaks: "unprepared",
		file:   "pglock/query.go", run: "TestPolling",
		old: "\t\t\td.store.unprepared.Store(true)",
		new: "\t\t\t_ = d.store.unprepared.Load()",
	},
	{
		breaks: "wanted",
		file:   "pglock/listen.go", run: "TestRows/Wanted",
		old: "\t\td.waits.want(nonce)",
		new: "\t\t_ = nonce",
	},
	{
		breaks: "refresh",
		file:   "pglock/wait.go", run: "TestRows/ManyWaiters",
		old: "refresh := last.Sub(refreshed) >= refreshEvery*9/10",
		new: "refresh := false",
	},
	{
		breaks: "refusal writes nothing",
		file:   "pglock/acquire.go", run: "TestRows/RefusalWritesNothing",
		old: "\tif req.NoWait || a.queued {",
		new: "\tif false {",
	},
	{
		breaks: "waiting through outage",
		file:   "pglock/acquire.go", run: "TestCut/Granting",
		old: "!a.queued, !passing(err), ctx.Err() != nil:",
		new: "!a.queued, true, ctx.Err() != nil:",
	},
	{
		breaks: "time limits",
		file:   "pglock/query.go", run: "TestRows/BusyRow",
		old: "case c == lockNotAvailable, c == queryCanceled:",
		new: `case c == "never":`,
	},
	{
		breaks: "pooler",
		file:   "pglock/listen.go", run: "TestSessionPooled",
		old: "pid != conn.PgConn().PID()",
		new: "false",
	},
	{
		breaks: "unlock answer",
		file:   "pglock/session.go", run: "TestSession/UnlockedByStranger",
		old: "\tif err == nil && !was {",
		new: "\tif false {",
	},
	{
		breaks: "dead session",
		file:   "pglock/statement.go", run: "TestSession/DeadSession",
		old: "THEN NOT pg_try_advisory_xact_lock_shared(1936615778, (e->>'session')::int) ELSE true END",
		new: "THEN true ELSE true END",
	},
	{
		breaks: "RR",
		file:   "pglock/tx.go", run: "TestTx/Isolation",
		old: `level == "repeatable read"`,
		new: `level == "x"`,
	},
}
