//go:build mutants

package mutant

var zookeeperMutants = []mutant{
	{
		breaks: "zookeeper: a leader shows what a follower has applied before",
		file:   "zklock/session.go", run: "TestSlowLeader", long: true,
		old: "do(ctx, s, deleteNode(child(s.d.conf.root, absentNode)))", new: "do(ctx, s, sendSync)",
	},
	{
		breaks: "zookeeper: an acquisition that was given up before its answer leaves no node",
		file:   "zklock/acquire.go", run: "TestCreateGivenUp",
		old: "	} else if a.creation.isRejected() {", new: "	} else {",
	},
	{
		breaks: "zookeeper: a lost connection loses the holds",
		file:   "zklock/session.go", run: "TestSuspendedIsLost",
		old: "return !s.d.conf.keepSuspended", new: "return false",
	},
	{
		breaks: "zookeeper: with KeepSuspended too, a hold ends before the ensemble ends its session",
		file:   "zklock/guard.go", run: "TestKeepSuspendedEnds",
		old: "s.leaseLeft(l, now), now", new: "s.leaseLeft(l, now)+time.Hour, now",
	},
	{
		breaks: "zookeeper: a lease is shorter than the session by what the leader may not have heard",
		file:   "zklock/lease.go", run: "TestLockerKnowsFirst",
		old: "TTL: l.s.leaseTTL()", new: "TTL: 3 * l.s.leaseTTL()",
	},
	{
		breaks: "zookeeper: a lease ends before the session, however long the client was silent",
		file:   "zklock/leadercontact.go", run: "TestHearingHolds",
		old: "start.Sub(c.countsFrom) > most {", new: "false {",
	},
	{
		breaks: "zookeeper: what was said counts when the server has had time to report it",
		file:   "zklock/leadercontact.go", run: "TestHearingHolds",
		old: "{ return timeout / 4 }", new: "{ return timeout / 40 }",
	},
	{
		breaks: "zookeeper: what was said on a slow way counts from its answer",
		file:   "zklock/leadercontact.go", run: "TestHearing",
		old: "c.unreported[0].answered.Sub(start)", new: "c.unreported[0].sent.Sub(start)",
	},
	{
		breaks: "zookeeper: what was said to a server that is left is not reported by the next",
		file:   "zklock/leadercontact.go", run: "TestHearingAnotherServer",
		old: "	c.unreported = nil // that server may be dead\n", new: "",
	},
	{
		breaks: "zookeeper: an answer after a long silence is worth less",
		file:   "zklock/session.go", run: "TestSilenceShortens",
		old: "start := s.contact.leaseStart(sent, s.timeout)", new: "start := sent",
	},
	{
		breaks: "zookeeper: the pings of the library keep an idle session fit for leases",
		file:   "zklock/link.go", run: "TestIdleSession",
		old: "		c.s.recordAnswer(c.pings[0]) // the server answers in order\n", new: "",
	},
	{
		breaks: "zookeeper: the order survives the wrap-around of the counter",
		file:   "zklock/queue.go", run: "TestLine",
		old: "return c.seq-d.seq < 0", new: "return c.seq < d.seq",
	},
	{
		breaks: "zookeeper: a waiter that is not in the line is not the first in it",
		file:   "zklock/acquire.go", run: "TestWaiterDeleted",
		old: "		a.node, a.creation = \"\", nil\n		return 0, st, errNodeGone\n	}\n	a.solePos", new: "		return connSeq, queueStatus{verdict: verdict{granted: true}}, nil\n	}\n	a.solePos",
	},
	{
		breaks: "zookeeper: who waits watches its predecessor only",
		file:   "zklock/queue.go", run: "TestNoHerd",
		old: "return verdict{watch: ahead[len(ahead)-1].node}, nil", new: "return verdict{watch: ahead[0].node}, nil",
	},
	{
		breaks: "zookeeper: a release that was not answered frees the lock in the end",
		file:   "zklock/lease.go", run: "TestDeleteLost",
		old: "	l.s.addOrphan(o)\n	l.mu.Lock()", new: "	o.deleted = make(chan struct{})\n	l.mu.Lock()",
	},
	{
		breaks: "zookeeper: the token is the zxid of the node, and no number of a folder that comes and goes",
		file:   "zklock/acquire.go", run: "TestFolderComesAgain",
		old: "token: uint64(a.stat.Czxid), start", new: "token: uint64(a.solePos.seq) + 1, start",
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
		old: "return l.state == held && l.watchedOn != connSeq", new: "return false",
	},
	{
		breaks: "zookeeper: a watch that was used up is set again",
		file:   "zklock/watch.go", run: "TestHolderDeleted",
		old: "		l.clearWatch()", new: "		_ = l",
	},
	{
		breaks: "zookeeper: a server that hangs does not hold up the way to the next",
		file:   "zklock/link.go", run: "TestUnusable/Hung",
		old: "if !c.handshakeDeadline.IsZero() && (t.IsZero() || t.After(c.handshakeDeadline)) {", new: "if false {",
	},
	{
		breaks: "zookeeper: who waits for a slot is told when the one before it got one",
		file:   "zklock/acquire.go", run: "TestSlotsLine",
		old: "	if a.hasFollower && a.req.Slots > 0 {", new: "	if false {",
	},
	{
		breaks: "zookeeper: a waiter whose session ended queues anew",
		file:   "zklock/acquire.go", run: "TestExpiredWhileWaiting",
		old: "errors.Is(err, errNodeGone), errors.Is(err, zk.ErrSessionExpired) && (a.wasQueued || a.shouldRetry()):",
		new: "errors.Is(err, errNodeGone):",
	},
	{
		breaks: "zookeeper: a create whose answer was lost is found again, and not done twice",
		file:   "zklock/acquire.go", run: "TestCreateAnswerLost",
		old: "	if a.creation != nil {\n		path, start, err := a.s.find", new: "	if false {\n		path, start, err := a.s.find",
	},
	{
		breaks: "zookeeper: a lock and a semaphore of one name exclude each other",
		file:   "zklock/queue.go", run: "TestJudge",
		old: "	if other := last(func(c contender) bool { return !c.sameKind(me) }); other != nil {", new: "	if other := last(func(c contender) bool { return false }); other != nil {",
	},
	{
		breaks: "zookeeper: a watch that has told while it was set does not count as one",
		file:   "zklock/lease.go", run: "TestChangedWhileRenewed",
		old: "if !ev.fired() {", new: "if ev != nil {",
	},
	{
		breaks: "zookeeper: who stands behind one that is let in at once learns that it is the first of those that wait",
		file:   "zklock/acquire.go", run: "TestSlotsLetInAtOnce",
		old: "	a.hasFollower = mine < len(all)-1\n", new: "",
	},
	{
		breaks: "zookeeper: who asks in a session that turns out to be over is served by the next one",
		file:   "zklock/acquire.go", run: "TestExpiredWhileAsking",
		old: "(a.wasQueued || a.shouldRetry()):", new: "a.wasQueued:",
	},
	{
		breaks: "zookeeper: a check is that of one hold, and not of its name",
		file:   "zklock/lease.go", run: "TestIsOwner",
		old: "key.name == name && l.token == token",
		new: "key.name == name",
	},
	{
		breaks: "zookeeper: a look that is given up reads nothing of an attempt that goes on",
		file:   "zklock/acquire.go", run: "TestInspectGivenUp", race: true,
		old: "startCall(a.s, readNode(child(a.folder, a.node)))",
		new: "startCall(a.s, func(conn *zk.Conn) (snapshot, error) { return readNode(child(a.folder, a.node))(conn) })",
	},
	{
		breaks: "zookeeper: who is next is the first only as long as its own node is there",
		file:   "zklock/acquire.go", run: "TestFirst",
		old: " && a.ownEvent != nil && !a.ownEvent.fired()", new: "",
	},
	{
		breaks: "zookeeper: a node that has gone may have left another in its place, for MinHold",
		file:   "zklock/acquire.go", run: "TestMinHoldOutlivesProcess",
		old: "st.isNext && !in.Stays && a.isFirstAfter(ahead)", new: "st.isNext && a.isFirstAfter(ahead)",
	},
	{
		breaks: "zookeeper: who is let in without a look has lately been heard of by the leader",
		file:   "zklock/acquire.go", run: "TestExpiredBetweenEventAndLook",
		old: "			if err := a.ensureConfirmed(ctx); err != nil {\n				return nil, err\n			}\n			return a.grant(connSeq)", new: "			return a.grant(connSeq)",
	},
	{
		breaks: "zookeeper: a hold whose node went as it was granted is none",
		file:   "zklock/lease.go", run: "TestHoldOwnGone",
		old: "		if ownEvent.fired() {", new: "		if false {",
	},
	{
		breaks: "zookeeper: a lock that we may not look at hides no other",
		file:   "zklock/inspect.go", run: "TestListHidden",
		old: "			denied = cmp.Or(denied, err)\n			continue", new: "			return cmp.Or(denied, err)",
	},
	{
		breaks: "zookeeper: a renewal looks again at a node whose watch was used up meanwhile",
		file:   "zklock/lease.go", run: "TestChangedBeforeRenewal",
		old: "if err != nil || !slices.ContainsFunc(", new: "if true || !slices.ContainsFunc(",
	},
	{
		breaks: "zookeeper: a session that nobody uses takes no memory for it",
		file:   "zklock/leadercontact.go", run: "TestHearingForgets",
		old: "<= -2*reportInterval(timeout) {", new: "<= -1e6*reportInterval(timeout) {",
	},
	{
		breaks: "zookeeper: nobody waits for a lease that is hardly longer",
		file:   "zklock/session.go", run: "TestConfirmWaits",
		old: "return s.leaseTTLLocked() / 6 }", new: "return 0 }",
	},
	{
		breaks: "zookeeper: who would get a much shorter lease waits for a longer one",
		file:   "zklock/session.go", run: "TestConfirmWaits",
		old: "return s.leaseTTLLocked() / 6 }", new: "return s.leaseTTLLocked() }",
	},
}
