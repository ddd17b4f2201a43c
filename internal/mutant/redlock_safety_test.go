//go:build mutants

package mutant

// redlockSafetyMutants break what Redlock reports when nobody gets a lock, and what protects its
// nodes from other clients.
var redlockSafetyMutants = []mutant{
	{
		breaks: "redlock: a name that our user may not use makes no node look broken",
		file:   "redlock/node.go", run: "TestACL",
		old: "if isForbidden(err) && batch[0].lock != noLock() {", new: "if false && isForbidden(err) {",
	},
	{
		breaks: "Redlock: nodes that take no part are unavailable",
		file:   "redlock/nomajority.go", run: "TestBlankNodesAreUnavailable|TestAdmission$",
		old: "	if len(d.nodes)-denied >= d.params.Quorum() {", new: "	if false {",
	},
	{
		breaks: "Redlock: a split vote is nobody's hold",
		file:   "redlock/acquire.go", run: "TestSplitVote",
		old: "func (e *splitError) Is(target error) bool { return target == driver.ErrUnavailable }",
		new: "func (e *splitError) Is(target error) bool { return target == driver.ErrHeld }",
	},
	{
		breaks: "Redlock: a deadline is kept while nodes hang",
		file:   "redlock/acquire.go", run: "TestDeadlineOnHungNodes",
		old: "	cancelCleanupTimeout = driver.CancelTimeout * 4 / 5", new: "	cancelCleanupTimeout    = cleanupTimeout",
	},
	{
		breaks: "Redlock: a wait that ends says that the nodes were unavailable",
		file:   "redlock/acquire.go", run: "TestBlankNodesAreUnavailable",
		old: "		return nil, fmt.Errorf(\"%w: %w\", err, context.Cause(ctx))", new: "		return nil, context.Cause(ctx)",
	},
	{
		breaks: "Redlock: what a node stores is quoted in errors",
		file:   "redlock/nomajority.go", run: "TestReasonsOfNodes",
		old: "as %s\", driver.ErrInvalid, quoted(text))", new: "as %s\", driver.ErrInvalid, text)",
	},
	{
		breaks: "Redlock: a wrong password is no outage",
		file:   "redlock/nomajority.go", run: "TestOpenWithoutMajority",
		old: "			denied++", new: "",
	},
	{
		breaks: "Redlock: each node that takes no part has a reason",
		file:   "redlock/acquire.go", run: "TestReasonsOfNodes",
		old: "			errs[i] = unadmittedError(ans.value)", new: "",
	},
	{
		breaks: "fence.Server: a body is read before anybody is kept out",
		file:   "fence/http.go", run: "TestSlowBody",
		old: "	if most < 0 || r.Body == nil", new: "	if true || r.Body == nil",
	},
	{
		breaks: "fence.Server: the body has to arrive in time",
		file:   "fence/http.go", run: "TestSlowBody",
		old: "		_ = conn.SetReadDeadline(time.Now().Add(timeout)) //", new: "		_ = conn //",
	},
	{
		breaks: "fence.Server: a client that does not read keeps nobody out",
		file:   "fence/http.go", run: "TestSlowHandlers",
		old: "	_ = conn.SetWriteDeadline(deadline) // as", new: "	// as",
	},
	{
		breaks: "fence.Server: the context of a handler ends",
		file:   "fence/http.go", run: "TestSlowHandlers",
		old: "			ctx = inner\n", new: "			_ = inner\n",
	},
	{
		breaks: "fence.Server: tokens have a ceiling",
		file:   "fence/http.go", run: "TestWildToken",
		old: "	case m.Token > most:", new: "	case false:",
	},
	{
		breaks: "fence.Server: the ceiling is not in the way of stores without a clock",
		file:   "fence/http.go", run: "TestTokensWithoutClock",
		old: "	DefaultMaxToken = 1<<56 - 1 ", new: "	DefaultMaxToken = 1<<53 - 1 ",
	},
	{
		breaks: "fence.Server: the name of the lock is not told",
		file:   "fence/http.go", run: "TestWildToken|TestServerRefuses",
		old: "is about another lock than the one that guards this resource\", Header)", new: "is about another lock than %q\", Header, want)",
	},
	{
		breaks: "fence.Transport: the mark stays with the host",
		file:   "fence/http.go", run: "TestRedirect",
		old: "	if staysWithHost(r) {", new: "	if true {",
	},
	{
		breaks: "fence: the files of marks are their owner's",
		file:   "fence/file.go", run: "TestModes",
		old: "mode: cmp.Or(g.MarkMode, 0o600)}", new: "mode: cmp.Or(g.MarkMode, 0o644)}",
	},
	{
		breaks: "fence: the mode does not depend on the umask",
		file:   "fence/file.go", run: "TestModes",
		old: "cmp.Or(g.Mode, 0o600), checkNew", new: "cmp.Or(g.Mode, 0o666), checkNew",
	},
	{
		breaks: "fence: links are not followed",
		file:   "fence/flock_unix.go", run: "TestLinks",
		old: "const noFollow = syscall.O_NOFOLLOW", new: "const noFollow = 0 * syscall.O_NOFOLLOW",
	},
	{
		breaks: "fence: a link that leads nowhere is refused",
		file:   "fence/file.go", run: "TestLinks",
		old: "	if _, err := os.Lstat(path); err == nil {", new: "	if false {",
	},
	{
		breaks: "fence: a file without its marks is refused",
		file:   "fence/file.go", run: "TestMarksAreGone",
		old: "	if g.Adopt {", new: "	if true {",
	},
	{
		breaks: "fence: empty marks are no new ones",
		file:   "fence/file.go", run: "TestMarksAreGone",
		old: "		return f.checkNew()\n", new: "		return nil\n",
	},
	{
		breaks: "fence: who got the lock of marks that were replaced asks those in their place",
		file:   "fence/file.go", run: "TestMarksAreReplaced",
		old: "	return err == nil && os.SameFile(opened, current), err", new: "	return err == nil && current != nil, err",
	},
	{
		breaks: "Redlock: a holder hears of a Break",
		file:   "redlock/script/serve.lua", pkg: "redlock", run: "TestBreakTellsHolder",
		old: "if code == 'b' then broken", new: "if code == 'B' then broken",
	},
	{
		breaks: "Redlock: a message that a lease was broken is a hint",
		file:   "redlock/loss.go", run: "TestForgedBreak",
		old: "		case e.foundLost:\n", new: "		case true:\n",
	},
	{
		breaks: "Redlock: force that has reached a few nodes only is looked at again",
		file:   "redlock/loss.go", run: "TestPartialBreak",
		old: "		case e.anyRefused():\n", new: "		case false:\n",
	},
	{
		breaks: "Redlock: a lease that a majority has ended does not stay on the others",
		file:   "redlock/lease.go", run: "TestLostLeavesNothing",
		old: "			l.freeEverywhere()\n", new: "",
	},
	{
		breaks: "Redlock: a counter far ahead of the clock is no vote",
		file:   "redlock/script/batch.lua", pkg: "redlock", run: "TestWildCounters/TwoDays",
		old: "  elseif c > most then", new: "  elseif false then",
	},
	{
		breaks: "Redlock: a counter that is no number is not zero",
		file:   "redlock/script/batch.lua", pkg: "redlock", run: "TestWildCounters/NoNumber",
		old: "  if not c then\n", new: "  if false then\n",
	},
	{
		breaks: "Redlock: an operator's floor counts on nodes that restart later",
		file:   "redlock/agent.go", run: "TestFloorAheadOfClock",
		old: "const floorStripe = stripes", new: "const floorStripe = stripes - 1",
	},
	{
		breaks: "Redlock: waiters of another type keep nobody from other locks",
		file:   "redlock/script/waiter.lua", pkg: "redlock", run: "TestMalformedKeys",
		old: "redis.pcall('HGET', waitersKey, owner)", new: "redis.call('HGET', waitersKey, owner)",
	},
	{
		breaks: "Redlock: waiters without a time keep nobody from other locks",
		file:   "redlock/script/show.lua", pkg: "redlock", run: "TestMalformedKeys",
		old: "(tonumber(string.sub(waiters[i], 1, 16)) or 0)", new: "tonumber(string.sub(waiters[i], 1, 16))",
	},
	{
		breaks: "Redlock: a value without the rest keeps nobody from other locks",
		file:   "redlock/script/value.lua", pkg: "redlock", run: "TestMalformedKeys",
		old: "(string.match(value, ' .*$', #nonce + 1) or ' {}')", new: "string.match(value, ' .*$', #nonce + 1)",
	},
	{
		breaks: "Redlock: the operator is told of wild counters",
		file:   "redlock/operate.go", run: "TestWildCounters/TwoDays",
		old: "		if n > most {", new: "		if n > most && stripe < 0 {",
	},
}
