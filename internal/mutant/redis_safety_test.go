//go:build mutants

package mutant

// redisSafetyMutants break what protects a Redis store from its other clients, from restarts and
// from hanging.
var redisSafetyMutants = []mutant{
	{
		breaks: "redislock: a request that was given up, and is executed late, is withdrawn again",
		file:   "redislock/acquire.go", run: "TestExecutedLate",
		old: "		if a.late {\n", new: "		if false {\n",
	},
	{
		breaks: "redislock: a name that our user may not use fails no request that is sent with it",
		file:   "redislock/sender.go", run: "TestACL",
		old: "if len(commands) == 1 || !isForbidden(r.Err) {", new: "if len(commands) >= 1 || !isForbidden(r.Err) {",
	},
	{
		breaks: "redislock: in a Cluster, the next grace period counts the long leases of all slots",
		file:   "redislock/forget.go", run: "TestGraceOfCluster",
		old: "	if d.conn.IsCluster() {", new: "	if d.conn.IsCluster() && script != d.longestScript {",
	},
	{
		breaks: "snib run -v says how long a restart would withhold all locks",
		file:   "cmd/snib/internal/cli/cli.go", pkg: "cmd/snib", run: "TestRedis/grace",
		old: "grace > time.Minute {", new: "grace > 1000*time.Hour {",
	},
	{
		breaks: "redislock: a server without a free connection is full, and not out of reach, also when it is opened",
		file:   "redislock/conn.go", run: "TestOpenFull",
		old: "	if isFull(e.cause) {", new: "	if false {",
	},
	{
		breaks: "redislock: a Release that the server could not carry out says so",
		file:   "redislock/lease.go", run: "TestReleaseUnavailable",
		old: "	answer, err := l.sendRelease(ctx)\n	if err != nil {\n		return asUnavailable(err)", new: "	answer, err := l.sendRelease(ctx)\n	if err != nil {\n		return err",
	},
	{
		breaks: "redis safety: a flood of messages is none of calls, for waiters",
		file:   "redislock/acquire.go", run: "TestFloodOfMessages",
		old: "min(max(2*a.hintPause, minHintPause), maxHintPause)",
		new: "0",
	},
	{
		breaks: "redis safety: a flood of messages is none of calls, for holders",
		file:   "redislock/check.go", run: "TestFloodOfMessages",
		old: "\t\ttimer := time.NewTimer(pause)\n",
		new: "\t\ttimer := time.NewTimer(0)\n",
	},
	{
		breaks: "redis safety: a hint that a hold is broken is checked",
		file:   "redislock/check.go", run: "TestForgedGrants",
		old: "case cmd.answer == \"w\":\n			l.markWanted()",
		new: "case cmd.answer == \"w\" && l.req.OnLost != nil:\n			l.req.OnLost(driver.ErrLost)",
	},
	{
		breaks: "redis safety: a break is told at once",
		file:   "redislock/script/break.lua", pkg: "redislock", run: "TestConformance$/Break",
		old: "    removeLongLease(hold)\n    hint(hold, 'b')\n  end\n",
		new: "    removeLongLease(hold)\n  end\n",
	},
	{
		breaks: "redis safety: a loss of memory is told when the server is back",
		file:   "redislock/listen.go", run: "TestToldOfLostMemory",
		old: "			d.verifyLater(l)\n		}\n	}\n}",
		new: "\t\t\t_ = l\n\t\t}\n\t}\n}",
	},
	{
		breaks: "redis safety: a record from the future is left out",
		file:   "redislock/script/entry.lua", pkg: "redislock", run: "TestMalformedQueue",
		old: " or entryTime(entry) > now + 60000000 then return end",
		new: " then return end",
	},
	{
		breaks: "redis safety: a record without what ours have is left out",
		file:   "redislock/script/entry.lua", pkg: "redislock", run: "TestMalformedQueue",
		old: "  if not ok or type(r) ~= 'table' or type(r.owner) ~= 'string'",
		new: "  if ok and type(r) == 'table' then return r end\n  if not ok or type(r) ~= 'table' or type(r.owner) ~= 'string'",
	},
	{
		breaks: "redis safety: nothing is published on the channels of others",
		file:   "redislock/script/entry.lua", pkg: "redislock", run: "TestForeignChannel|TestMalformedQueue",
		old: "if not isText(r.channel, '^snib%.c:[%w{}:]+$')\n",
		new: "if not isText(r.channel, '')\n",
	},
	{
		breaks: "redis safety: tokens do not repeat above 2^53",
		file:   "redislock/script/token.lua", pkg: "redislock", run: "TestWildToken",
		old: "local function exhausted() return not (lastToken < 9007199253692416) end",
		new: "local function exhausted() return false end",
	},
	{
		breaks: "redis safety: the shortest TTL does not decide the grace",
		file:   "redislock/script/grace.lua", pkg: "redislock", run: "TestShortTTLDoesNotDecide",
		old: "math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))",
		new: "math.min(math.max(unknown, math.min(ttl, 60000)), maxTTL))",
	},
	{
		breaks: "redis safety: MaxTTL bounds the grace",
		file:   "redislock/script/grace.lua", pkg: "redislock", run: "TestReleasedLeasesDoNotCount",
		old: "math.min(math.max(unknown, floor, math.min(ttl, 60000)), maxTTL))",
		new: "math.max(unknown, floor, math.min(ttl, 60000)))",
	},
	{
		breaks: "redis safety: a long lease that was released does not count for the grace",
		file:   "redislock/script/release.lua", pkg: "redislock", run: "TestReleasedLeasesDoNotCount",
		old: "  if not found then return 'l' end\n  removeLongLease(hold)\n",
		new: "  if not found then return 'l' end\n",
	},
	{
		breaks: "redis safety: a long lease that lives counts for the grace",
		file:   "redislock/script/identity.lua", pkg: "redislock", run: "TestReleasedLeasesDoNotCount",
		old: "      unknown = math.max(unknown, tonumber(",
		new: "      unknown = math.max(0, 0 * tonumber(",
	},
	{
		breaks: "redis safety: a renewed long lease counts for the grace",
		file:   "redislock/lease.go", run: "TestLongLeaseIsKnownAfterRenewal",
		old: " || l.d.isLong(l.req.TTL) {\n		return batchKey{slot: l.slot}",
		new: " {\n		return batchKey{slot: l.slot}",
	},
	{
		breaks: "redis safety: nobody is said to hold what a grace withholds",
		file:   "redislock/redislock.go", run: "TestShortTTLDoesNotDecide",
		old: "func (e *GraceError) Is(target error) bool { return target == driver.ErrUnavailable }",
		new: "func (e *GraceError) Is(target error) bool { return target == driver.ErrHeld }",
	},
	{
		breaks: "redis safety: Sentinels without min-replicas-to-write are refused",
		file:   "redislock/survey.go", run: "TestSentinelNeedsReplicas",
		old: "if conn.IsSentinel() && !conf.splitBrain &&",
		new: "if false &&",
	},
	{
		breaks: "redis safety: an old master that comes back empty grants nothing",
		file:   "redislock/script/grace.lua", pkg: "redislock", run: "TestOldMasterComesBackEmpty",
		old: "  if not floor then return 0 end",
		new: "  if floor then return 0 end",
	},
	{
		breaks: "redis safety: the grace behind Sentinel outlasts the demotion of an old master",
		file:   "redislock/redislock.go", run: "TestSentinelFloor",
		old: "conf.floor = max(conf.floor, sentinelFloor)",
		new: "conf.floor = max(conf.floor, 0)",
	},
	{
		breaks: "redis safety: the queue of dead processes ends by itself",
		file:   "redislock/script/acquire.lua", pkg: "redislock", run: "TestNothingLeftOfDead",
		old: "  redis.call('PEXPIRE', queue, absence / 500)\n",
		new: "",
	},
	{
		breaks: "redis safety: what dead processes asked for ends by itself",
		file:   "redislock/script/acquire.lua", pkg: "redislock", run: "TestNothingLeftOfDead",
		old: "  redis.call('PEXPIRE', requests, absence / 500)\n",
		new: "",
	},
	{
		breaks: "redis safety: leases of a slot that is half moved are renewed",
		file:   "redislock/lease.go", run: "TestHalfMovedSlot",
		old: "if isMoving(replies[i].Err) {",
		new: "if false {",
	},
	{
		breaks: "redis safety: an acquisition returns in time when the server hangs",
		file:   "redislock/sender.go", run: "TestHungServerReturns",
		old: " && (cmd.code == \"r\" || cmd.code == \"R\" || ctx.Done() == nil) {",
		new: " {",
	},
	{
		breaks: "redis safety: a withdrawal goes on in the background",
		file:   "redislock/acquire.go", run: "TestHungServerReturns",
		old: "cleanupTimeout = driver.CancelTimeout / 2",
		new: "cleanupTimeout = 5 * driver.CancelTimeout",
	},
	{
		breaks: "redis safety: a server whose memory is full is unavailable",
		file:   "redislock/conn.go", run: "TestUnavailable/OOM",
		old: ", \"NOSCRIPT\", \"OOM\",",
		new: ", \"NOSCRIPT\",",
	},
}
