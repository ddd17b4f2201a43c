//go:build mutants

package mutant

var zketcdSafetyMutants = []mutant{
	{
		breaks: "zketcd zk: a hold that is lost with its connection keeps the lock closed for its LockDelay",
		file:   "zklock/session.go", run: "TestLockDelayWithoutConnection",
		old: "l.lose(cause, driver.Now().Add(l.req.LockDelay))", new: "l.lose(cause, driver.Instant{})",
	},
	{
		breaks: "zketcd zk: a hold that was told lost blocks nobody until Release",
		file:   "zklock/guard.go", run: "TestLostNotReleased|TestLeaseEnds",
		old: "		if left <= 0 {\n", new: "		if false && left <= 0 {\n",
	},
	{
		breaks: "zketcd zk: a hold whose renewals fail does not last with the session",
		file:   "zklock/guard.go", run: "TestLeaseEnds",
		old: "		case l.expires.IsZero():\n			l.expires = s.validUntil(l.start)\n", new: "",
	},
	{
		breaks: "zketcd zk: a holder is told at once that its node was deleted",
		file:   "zklock/guard.go", run: "TestHolderDeleted",
		old: "			c.unwatched = append(c.unwatched, l)\n", new: "",
	},
	{
		breaks: "zketcd zk: a kept node whose time is over refuses nobody who does not want to wait",
		file:   "zklock/acquire.go", run: "TestMinHoldLapsed",
		old: "case a.req.NoWait && !status.changed:", new: "case a.req.NoWait:",
	},
	{
		breaks: "zketcd zk: a kept node whose time is over is shown as no hold",
		file:   "zklock/inspect.go", run: "TestMinHoldLapsed",
		old: " || c.lapsed(snaps[i]) {", new: " {",
	},
	{
		breaks: "zketcd zk: a process that lives deletes its kept nodes although its session has ended",
		file:   "zklock/sweep.go", run: "TestMinHoldOutlivesSession",
		old: "		if o.kept && !", new: "		if false && !",
	},
	{
		breaks: "zketcd zk: a caller does not wait for a withdrawal from servers that hang",
		file:   "zklock/acquire.go", run: "TestConformance$/^Sever$/^CancelWaiter$",
		old: "cleanupTimeout = driver.CancelTimeout * 3 / 5", new: "cleanupTimeout = 10 * driver.CancelTimeout",
	},
	{
		breaks: "zketcd zk: a connection that breaks is no answer",
		file:   "zklock/error.go", run: "TestBrokenConnection",
		old: ", errors.As(err, new(net.Error)), errors.Is(err, io.EOF):", new: ", errors.As(err, new(net.Error)) && errors.Is(err, io.EOF):",
	},
	{
		breaks: "zketcd zk: who does not want to wait is told that servers hang",
		file:   "zklock/acquire.go", run: "TestNoWaitHung",
		old: "	if req.NoWait {\n", new: "	if false && req.NoWait {\n",
	},
	{
		breaks: "zketcd zk: a host that nobody knows is no outage",
		file:   "zklock/error.go", run: "TestUnusable/NoSuchHost",
		old: "return dns.IsNotFound", new: "return dns == nil",
	},
	{
		breaks: "zketcd etcd: a holder is told at once that its key is gone",
		file:   "etcdlock/watch.go", run: "TestHolderTold$",
		old: "			if ev.Type == mvccpb.Event_DELETE &&", new: "			if ev.Type != mvccpb.Event_DELETE &&",
	},
	{
		breaks: "zketcd etcd: a release is no loss",
		file:   "etcdlock/lease.go", run: "TestHolderTold$",
		old: "	l.s.mute(l)\n", new: "",
	},
	{
		breaks: "zketcd etcd: what happens between two streams of watches is told",
		file:   "etcdlock/watch.go", run: "TestHolderToldAfterCut",
		old: "			s.keyWatches.unwatched = append(s.keyWatches.unwatched, l)\n", new: "",
	},
	{
		breaks: "zketcd etcd: a caller does not wait for a withdrawal from a server that hangs",
		file:   "etcdlock/call.go", run: "TestConformance$/^Sever$/^CancelWaiter$",
		old: "cleanupTimeout = driver.CancelTimeout * 3 / 5", new: "cleanupTimeout = 10 * driver.CancelTimeout",
	},
	{
		breaks: "zketcd etcd: what keeps us from etcd is named at once",
		file:   "etcdlock/acquire.go", run: "TestUnreachable/(Refused|PlainToTLS)",
		old: "unreachable && !r.noAnswer {", new: "false && unreachable && !r.noAnswer {",
	},
	{
		breaks: "zketcd etcd: a host that nobody knows is no outage",
		file:   "etcdlock/reach.go", run: "TestUnreachable/NoSuchHost",
		old: "return ok && dns.IsNotFound", new: "return ok && dns.IsTemporary",
	},
	{
		breaks: "zketcd etcd: a wait that ends in an outage says so",
		file:   "etcdlock/acquire.go", run: "TestOutageWhileWaiting",
		old: "	if lastErr == nil && a.d", new: "	if false && a.d",
	},
	{
		breaks: "zketcd zk: a waiter survives an outage of almost a minute",
		file:   "zklock/acquire.go", run: "TestRetryTimeout",
		old: "time.Since(a.disconnectedSince) < driver.RetryTimeout", new: "time.Since(a.disconnectedSince) < driver.RetryTimeout/2",
	},
	{
		breaks: "zketcd zk: a long dial timeout does not make an acquisition retry for ever",
		file:   "zklock/acquire.go", run: "TestRetryTimeout/SlowDial$",
		old: "limit = max(limit, driver.RetryTimeout)", new: "limit += 0",
	},
	{
		breaks: "zketcd etcd: a waiter survives an outage of almost a minute",
		file:   "etcdlock/acquire.go", run: "TestRetryTimeout",
		old: "time.Since(a.unreachableSince) < driver.RetryTimeout", new: "time.Since(a.unreachableSince) < driver.RetryTimeout/2",
	},
	{
		breaks: "zketcd etcd: an outage does not count from the beginning of the wait",
		file:   "etcdlock/acquire.go", run: "TestRetryTimeout",
		old: "	case a.wasQueued:\n", new: "	case false && a.wasQueued:\n",
	},
	{
		breaks: "etcdlock: a key that was deleted while the keep-alive was on its way grants nothing",
		file:   "etcdlock/acquire.go", run: "TestGoneAfterCheck",
		old: "> maxCheckAge {",
		new: "> time.Hour {",
	},
}
