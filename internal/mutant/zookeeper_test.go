//go:build mutants

package mutant

var zookeeperMutants = []mutant{
	{
		breaks: "zookeeper: a leader shows what a follower has applied before",
		file:   "zklock/session.go", run: "TestSlowLeader", long: true,
		old: "do(ctx, s, remove(child(s.d.conf.root, noLock)))", new: "do(ctx, s, sync1)",
	},
	{
		breaks: "zookeeper: an acquisition that was given up before its answer leaves no node",
		file:   "zklock/acquire.go", run: "TestCreateGivenUp",
		old: "	} else if a.made.refused() {", new: "	} else {",
	},
	{
		breaks: "zookeeper: a lost connection loses the holds",
		file:   "zklock/session.go", run: "TestSuspendedIsLost",
		old: "return !s.d.conf.suspend", new: "return false",
	},
	{
		breaks: "zookeeper: with KeepSuspended too, a hold ends before the ensemble ends its session",
		file:   "zklock/guard.go", run: "TestKeepSuspendedEnds",
		old: "s.leaseLeft(h, now), now", new: "s.leaseLeft(h, now)+time.Hour, now",
	},
	{
		breaks: "zookeeper: a lease is shorter than the session by what the leader may not have heard",
		file:   "zklock/lease.go", run: "TestLockerKnowsFirst",
		old: "TTL: h.s.lifetime()", new: "TTL: 3 * h.s.lifetime()",
	},
	{
		breaks: "zookeeper: a lease ends before the session, however long the client was silent",
		file:   "zklock/hearing.go", run: "TestHearingHolds",
		old: "start.Sub(h.sure) > most {", new: "false {",
	},
	{
		breaks: "zookeeper: what was said counts when the server has had time to report it",
		file:   "zklock/hearing.go", run: "TestHearingHolds",
		old: "{ return timeout / 4 }", new: "{ return timeout / 40 }",
	},
	{
		breaks: "zookeeper: what was said on a slow way counts from its answer",
		file:   "zklock/hearing.go", run: "TestHearing",
		old: "h.open[0].answered.Sub(start)", new: "h.open[0].said.Sub(start)",
	},
	{
		breaks: "zookeeper: what was said to a server that is left is not reported by the next",
		file:   "zklock/hearing.go", run: "TestHearingAnotherServer",
		old: "	h.open = nil // that server may be dead\n", new: "",
	},
	{
		breaks: "zookeeper: an answer after a long silence is worth less",
		file:   "zklock/session.go", run: "TestSilenceShortens",
		old: "start := s.hearing.credit(asked, s.timeout)", new: "start := asked",
	},
	{
		breaks: "zookeeper: the pings of the library keep an idle session fit for leases",
		file:   "zklock/link.go", run: "TestIdleSession",
		old: "		l.s.answered(l.pings[0]) // they are answered in order\n", new: "",
	},
	{
		breaks: "zookeeper: the order survives the wrap-around of the counter",
		file:   "zklock/queue.go", run: "TestLine",
		old: "return c.seq-d.seq < 0", new: "return c.seq < d.seq",
	},
	{
		breaks: "zookeeper: a waiter that is not in the line is not the first in it",
		file:   "zklock/acquire.go", run: "TestWaiterDeleted",
		old: "		a.name, a.made = \"\", nil\n		return 0, t, errGone\n	}\n	a.alone", new: "		return link, turn{verdict: verdict{granted: true}}, nil\n	}\n	a.alone",
	},
	{
		breaks: "zookeeper: who waits watches its predecessor only",
		file:   "zklock/queue.go", run: "TestNoHerd",
		old: "return verdict{watch: ahead[len(ahead)-1].node}, nil", new: "return verdict{watch: ahead[0].node}, nil",
	},
	{
		breaks: "zookeeper: a release that was not answered frees the lock in the end",
		file:   "zklock/lease.go", run: "TestDeleteLost",
		old: "	h.s.sweep(o)\n	h.mu.Lock()", new: "	o.gone = make(chan struct{})\n	h.mu.Lock()",
	},
	{
		breaks: "zookeeper: the token is the zxid of the node, and no number of a folder that comes and goes",
		file:   "zklock/acquire.go", run: "TestFolderComesAgain",
		old: "token: uint64(a.stat.Czxid), start", new: "token: uint64(a.alone.seq) + 1, start",
	},
	{
		breaks: "zookeeper: what came and went in a folder since is not taken for our node",
		file:   "zklock/queue.go", run: "TestPlaceBefore",
		old: "		folder.stat.Cversion == 2*(me.seq+1)-1", new: "		true",
	},
	{
		breaks: "zookeeper: MinHold outlives the process",
		file:   "zklock/keep.go", run: "TestMinHoldOutlivesProcess",
		old: "	if left > 0 {", new: "	if false {",
	},
	{
		breaks: "zookeeper: a renewal says that the node is gone",
		file:   "zklock/lease.go", run: "TestHolderDeleted",
		old: "return h.state == held && h.watched != link", new: "return false",
	},
	{
		breaks: "zookeeper: a watch that was used up is set again",
		file:   "zklock/watch.go", run: "TestHolderDeleted",
		old: "		h.unwatched()", new: "		_ = h",
	},
	{
		breaks: "zookeeper: a server that hangs does not hold up the way to the next",
		file:   "zklock/link.go", run: "TestUnusable/Hung",
		old: "if !l.late.IsZero() && (t.IsZero() || t.After(l.late)) {", new: "if false {",
	},
	{
		breaks: "zookeeper: who waits for a slot is told when the one before it got one",
		file:   "zklock/acquire.go", run: "TestSlotsLine",
		old: "	if a.followed && a.req.Slots > 0 {", new: "	if false {",
	},
	{
		breaks: "zookeeper: a waiter whose session ended queues anew",
		file:   "zklock/acquire.go", run: "TestExpiredWhileWaiting",
		old: "errors.Is(err, errGone), errors.Is(err, zk.ErrSessionExpired) && (a.queued || a.patient()):",
		new: "errors.Is(err, errGone):",
	},
	{
		breaks: "zookeeper: a create whose answer was lost is found again, and not done twice",
		file:   "zklock/acquire.go", run: "TestCreateAnswerLost",
		old: "	if a.made != nil {\n		path, start, err := a.s.find", new: "	if false {\n		path, start, err := a.s.find",
	},
	{
		breaks: "zookeeper: a lock and a semaphore of one name exclude each other",
		file:   "zklock/queue.go", run: "TestJudge",
		old: "	if other := last(func(c contender) bool { return !c.sameKind(me) }); other != nil {", new: "	if other := last(func(c contender) bool { return false }); other != nil {",
	},
	{
		breaks: "zookeeper: a watch that has told while it was set does not count as one",
		file:   "zklock/lease.go", run: "TestChangedWhileRenewed",
		old: "if !n.told() { // maybe before we came here", new: "if n != nil {",
	},
	{
		breaks: "zookeeper: who stands behind one that is let in at once learns that it is the first of those that wait",
		file:   "zklock/acquire.go", run: "TestSlotsLetInAtOnce",
		old: "	a.followed = mine < len(all)-1\n", new: "",
	},
	{
		breaks: "zookeeper: who asks in a session that turns out to be over is served by the next one",
		file:   "zklock/acquire.go", run: "TestExpiredWhileAsking",
		old: "(a.queued || a.patient()):", new: "a.queued:",
	},
	{
		breaks: "zookeeper: a check is that of one hold, and not of its name",
		file:   "zklock/lease.go", run: "TestIsOwner",
		old: "key.name == name && h.token == token",
		new: "key.name == name",
	},
	{
		breaks: "zookeeper: a look that is given up reads nothing of an attempt that goes on",
		file:   "zklock/acquire.go", run: "TestInspectGivenUp", race: true,
		old: "begin(a.s, read(child(a.folder, a.name)))",
		new: "begin(a.s, func(conn *zk.Conn) (sight, error) { return read(child(a.folder, a.name))(conn) })",
	},
	{
		breaks: "zookeeper: who is next is the first only as long as its own node is there",
		file:   "zklock/acquire.go", run: "TestFirst",
		old: " && a.own != nil && !a.own.told()", new: "",
	},
	{
		breaks: "zookeeper: a node that has gone may have left another in its place, for MinHold",
		file:   "zklock/acquire.go", run: "TestMinHoldOutlivesProcess",
		old: "t.next && !in.Stays && a.first(ahead)", new: "t.next && a.first(ahead)",
	},
	{
		breaks: "zookeeper: who is let in without a look has lately been heard of by the leader",
		file:   "zklock/acquire.go", run: "TestExpiredBetweenEventAndLook",
		old: "			if err := a.fresh(ctx); err != nil {\n				return nil, err\n			}\n			return a.grant(link)", new: "			return a.grant(link)",
	},
	{
		breaks: "zookeeper: a hold whose node went as it was granted is none",
		file:   "zklock/lease.go", run: "TestHoldOwnGone",
		old: "		if own.told() {", new: "		if false {",
	},
	{
		breaks: "zookeeper: a lock that we may not look at hides no other",
		file:   "zklock/inspect.go", run: "TestListHidden",
		old: "			hidden = cmp.Or(hidden, err)\n			continue", new: "			return cmp.Or(hidden, err)",
	},
	{
		breaks: "zookeeper: a renewal looks again at a node whose watch was used up meanwhile",
		file:   "zklock/lease.go", run: "TestChangedBeforeRenewal",
		old: "if err != nil || !slices.ContainsFunc(", new: "if true || !slices.ContainsFunc(",
	},
	{
		breaks: "zookeeper: a session that nobody uses takes no memory for it",
		file:   "zklock/hearing.go", run: "TestHearingForgets",
		old: "<= -2*reported(timeout) {", new: "<= -1e6*reported(timeout) {",
	},
	{
		breaks: "zookeeper: nobody waits for a lease that is hardly longer",
		file:   "zklock/session.go", run: "TestConfirmWaits",
		old: "return s.tenure() / 6 }", new: "return 0 }",
	},
	{
		breaks: "zookeeper: who would get a much shorter lease waits for a longer one",
		file:   "zklock/session.go", run: "TestConfirmWaits",
		old: "return s.tenure() / 6 }", new: "return s.tenure() }",
	},
}
