//go:build mutants

package mutant

var etcdMutants = []mutant{
	{
		breaks: "etcdlock: a session counts from when a keep-alive was sent",
		file:   "etcdlock/session.go", run: "TestStartIsSendTime",
		old: "	start := driver.Now() // before the request: the deadline must not be late\n	err := s.roundTrip(stream)",
		new: "	err := s.roundTrip(stream)\n	start := driver.Now()",
	},
	{
		breaks: "etcdlock: a session ends by our own clock when etcd hangs",
		file:   "etcdlock/session.go", run: "TestHungServer",
		old: "		if end.Reached(now) {", new: "		if false {",
	},
	{
		breaks: "etcdlock: a session ends before etcd can end it",
		file:   "etcdlock/session.go", run: "TestHungServer",
		old: "return s.start.Add(s.ttl - s.ttl/drift - margin)", new: "return s.start.Add(s.ttl + time.Second)",
	},
	{
		breaks: "etcdlock: a session that etcd has ended is over",
		file:   "etcdlock/session.go", run: "TestRevoked",
		old: "		if isLeaseGone(err) {", new: "		if false && isLeaseGone(err) {",
	},
	{
		breaks: "etcdlock: holders are told that their session is over",
		file:   "etcdlock/session.go", run: "TestRevoked",
		old: "	for l := range leases {\n		l.lose(why)\n	}", new: "	_ = leases",
	},
	{
		breaks: "etcdlock: a process has one session",
		file:   "etcdlock/session.go", run: "TestOneSession",
		old: "	d.session.Store(s)\n", new: "",
	},
	{
		breaks: "etcdlock: Close ends the session in etcd",
		file:   "etcdlock/etcdlock.go", run: "TestConformance$/^Session$",
		old: "			s.revoke()\n", new: "",
	},
	{
		breaks: "etcdlock: a waiter whose turn has come looks whether its key is there",
		file:   "etcdlock/acquire.go", run: "TestGoneBeforeCheck",
		old: "	err := a.d.checkExists(ctx, a.key, a.revision)\n	if errors", new: "	err := error(nil)\n	if errors",
	},
	{
		breaks: "etcdlock: a waiter whose key was deleted begins anew",
		file:   "etcdlock/watchedqueue.go", run: "TestKeyDeleted",
		old: "		return gone, nil", new: "		return waits, nil",
	},
	{
		breaks: "etcdlock: a waiter whose session is over begins anew in another one",
		file:   "etcdlock/acquire.go", run: "TestRevoked/Waiting",
		old: "	if a.key == \"\" || a.s != s {", new: "	if a.key == \"\" {",
	},
	{
		breaks: "etcdlock: two requests through one driver exclude each other",
		file:   "etcdlock/queue.go", run: "TestConformance$/^Exclusion$",
		old: "+ \".\" + nonce", new: "+ \".\" + nonce[:16]",
	},
	{
		breaks: "etcdlock: what failed leaves no key",
		file:   "etcdlock/acquire.go", run: "TestCancelled/Granted",
		old: "	if a.maybePut {\n		ctx, cancel", new: "	if false {\n		ctx, cancel",
	},
	{
		breaks: "etcdlock: a request that was given up and comes true later is taken back",
		file:   "etcdlock/acquire.go", run: "TestLateRequest",
		old: "err != nil || a.mayPutLater {", new: "err != nil {",
	},
	{
		breaks: "etcdlock: a release that etcd has not heard of is said again",
		file:   "etcdlock/lease.go", run: "TestReleaseUnheard",
		old: "		l.scheduleCleanup()\n		return explain(err)", new: "		return explain(err)",
	},
	{
		breaks: "etcdlock: a request that was repeated, and comes true when all is over, is taken back",
		file:   "etcdlock/acquire.go", run: "TestLateRepeat",
		old: "mayReappear:  a.mayPutLater, ", new: "",
	},
	{
		breaks: "etcdlock: a lost answer is found again",
		file:   "etcdlock/call.go", run: "TestLostAnswers",
		old: "code == codes.Unavailable || ", new: "",
	},
	{
		breaks: "etcdlock: a release whose answer was lost is no loss",
		file:   "etcdlock/lease.go", run: "TestLostAnswers",
		old: "	case !existed && !l.releaseUnanswered:", new: "	case !existed:",
	},
	{
		breaks: "etcdlock: a release says so if the key was gone",
		file:   "etcdlock/lease.go", run: "TestIsOwner",
		old: "	return err == nil && answer.Deleted > 0, err", new: "	return err == nil && answer.Deleted >= 0, err",
	},
	{
		breaks: "etcdlock: a renewal looks whether the key is there",
		file:   "etcdlock/lease.go", run: "TestConformance$/^Break$",
		old: "			} else if !l.recordCheck(answer.Responses[i]) {", new: "			} else if l.recordCheck(answer.Responses[i]); false {",
	},
	{
		breaks: "etcdlock: IsOwner never holds for a hold of somebody else",
		file:   "etcdlock/lease.go", run: "TestIsOwner",
		old: "clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), \"<\", 0)", new: "clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), \"=\", 0)",
	},
	{
		breaks: "etcdlock: MinHold outlives the process",
		file:   "etcdlock/lease.go", run: "TestMinHoldOutlivesProcess",
		old: "l.info.encode(true), clientv3.WithLease(minHoldLease.ID))", new: "l.info.encode(true), clientv3.WithLease(l.s.id))",
	},
	{
		breaks: "etcdlock: a watch that hangs costs seconds",
		file:   "etcdlock/watchedqueue.go", run: "TestDeafWatch",
		old: "		timer.Reset(watchCheckInterval)", new: "		timer.Reset(time.Hour)",
	},
	{
		breaks: "etcdlock: a process watches a name once",
		file:   "etcdlock/watchedqueue.go", run: "TestOneWatch",
		old: "		d.queues.byName[name] = q\n", new: "",
	},
	{
		breaks: "etcdlock: names that begin alike are different locks",
		file:   "etcdlock/queue.go", run: "TestNames",
		old: "	return strings.IndexByte(string(key[len(name)+1:]), '/') < 0", new: "	return true",
	},
	{
		breaks: "etcdlock: a key that is no lock is told of",
		file:   "etcdlock/queue.go", run: "TestNoLock",
		old: "		if e.info.Slots != i.Slots || e.etcdLease == 0 {", new: "		if e.info.Slots != i.Slots {",
	},
	{
		breaks: "etcdlock: who writes is alone",
		file:   "etcdlock/queue.go", run: "TestConformance$/^Shared$",
		old: "	s.exclusive = s.exclusive || !e.info.Shared && e.info.Slots == 0\n", new: "",
	},
	{
		breaks: "etcdlock: a semaphore has no more room than it says",
		file:   "etcdlock/queue.go", run: "TestConformance$/^Slots$",
		old: "return s.count < i.Slots", new: "return s.count <= i.Slots",
	},
	{
		breaks: "etcdlock: a stranger's lock counts",
		file:   "etcdlock/queue.go", run: "TestStrangers$",
		old: "			e, _ := parseEntry(kv)\n			q = append(q, e)", new: "			if e, _ := parseEntry(kv); e.info.Format == 1 {\n				q = append(q, e)\n			}",
	},
	{
		breaks: "etcd: two leases of one hold are renewed together, and spoil nothing for those beside them",
		file:   "etcdlock/lease.go", run: "TestRenewTwice",
		old: "if _, known := index[l]; !known {", new: "if true {",
	},
	{
		breaks: "etcdlock: a lock that is taken over and over leaves one dead key",
		file:   "etcdlock/nonce.go", run: "TestKeysAgain",
		old: "	n.free = append(n.free, nonce)\n", new: "",
	},
	{
		breaks: "etcdlock: a key that a request may put yet is none of a later one",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/PutUnheard",
		old: "				l.scheduleCleanup()\n			// The key is gone for good.\n			case err == nil", new: "				l.scheduleCleanup()\n				l.d.nonces.giveBack(l.nonce)\n			case err == nil",
	},
	{
		breaks: "etcdlock: a key that a request which was given up may put yet is none of a later one",
		file:   "etcdlock/acquire.go", run: "TestKeysNotAgain/PutGivenUp",
		old: "			a.s.addCleanup(a.key)\n			return\n", new: "			a.s.addCleanup(a.key)\n",
	},
	{
		breaks: "etcdlock: a key whose release was not answered is none of a later one",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/DeleteUnheard",
		old: "err == nil && !l.releaseUnanswered && l.req.MinHold == 0:", new: "err == nil && l.req.MinHold == 0:",
	},
	{
		breaks: "etcdlock: a key that MinHold keeps is none of a later request",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/MinHold",
		old: "err == nil && !l.releaseUnanswered && l.req.MinHold == 0:", new: "err == nil && !l.releaseUnanswered:",
	},
	{
		breaks: "etcdlock: the key of an earlier hold, in a watch that lags, is not that of a request",
		file:   "etcdlock/watchedqueue.go", run: "TestOldKeyInView",
		old: "i >= 0 && q.queue[i].revision == w.revision", new: "i >= 0",
	},
	{
		breaks: "etcdlock: a watch that hangs is seen to, although the keys are the same again",
		file:   "etcdlock/watchedqueue.go", run: "TestDeafAgain",
		old: "a.key == b.key && a.revision == b.revision", new: "a.key == b.key",
	},
	{
		breaks: "etcdlock: a hold that was lost stays so, although its key comes again",
		file:   "etcdlock/lease.go", run: "TestLateRepeatLost",
		old: "	if l.mayReappear {\n		answer, err", new: "	if false {\n		answer, err",
	},
	{
		breaks: "etcdlock: the tokens of a block lie below those of the next hold",
		file:   "etcdlock/token.go", run: "TestBlock$",
		old: "return uint64(revision) << placeBits", new: "return uint64(revision)",
	},
	{
		breaks: "etcdlock: an owner that asks again gets no token that was not reserved",
		file:   "etcdlock/lease.go", run: "TestBlockAgain",
		old: "Tokens: min(l.blockSize, blockSizeOf(req))", new: "Tokens: blockSizeOf(req)",
	},
	{
		breaks: "etcdlock: the holder of a block is told of waiters elsewhere",
		file:   "etcdlock/watchedqueue.go", run: "TestNobodyStarves",
		old: "	if len(q.leases) == 0 {\n		return\n	}", new: "	if len(q.leases) >= 0 {\n		return\n	}",
	},
	{
		breaks: "etcdlock: the holder of a block is told of those who were there before it",
		file:   "etcdlock/watchedqueue.go", run: "TestWanted$",
		old: "	q.leases[l] = struct{}{}\n	q.signalLeases()\n", new: "	q.leases[l] = struct{}{}\n",
	},
	{
		breaks: "etcdlock: a waiter of the same process is no other process",
		file:   "etcdlock/watchedqueue.go", run: "TestWanted$",
		old: " && e.etcdLease != int64(l.s.id)", new: "",
	},
	{
		breaks: "etcdlock: a reader is in no other reader's way",
		file:   "etcdlock/watchedqueue.go", run: "TestWantedShared",
		old: "	_, waiting := q.queue.split()\n", new: "	waiting := q.queue\n",
	},
	{
		breaks: "etcdlock: who can't be told of others does not hand over at will",
		file:   "etcdlock/watchedqueue.go", run: "TestWantedDeaf/Fails",
		old: "	for l := range q.leases {\n		l.signalWanted()\n	}\n	if isPermanent(err) {", new: "	if isPermanent(err) {",
	},
	{
		breaks: "etcdlock: a hold with one token costs no watch",
		file:   "etcdlock/acquire.go", run: "TestWatchForBlock",
		old: "	if l.blockSize > 1 {", new: "	if l.blockSize > 0 {",
	},
	{
		breaks: "etcdlock: the watch of a hold with a block ends with it",
		file:   "etcdlock/watchedqueue.go", run: "TestWatchForBlock",
		old: "	if observes {\n		q.release()\n	}", new: "	_ = observes",
	},
	{
		breaks: "etcdlock: IsOwner holds under each token of a block",
		file:   "etcdlock/lease.go", run: "TestIsOwnerBlock",
		old: "return first <= token && token-first < uint64(l.blockSize)", new: "return first == token",
	},
	{
		breaks: "etcdlock: IsOwner never holds under a token that was not reserved",
		file:   "etcdlock/lease.go", run: "TestIsOwnerBlock",
		old: "token-first < uint64(l.blockSize)", new: "Revision(token) == l.revision",
	},
	{
		breaks: "etcdlock: a revision that leaves no room for tokens is refused",
		file:   "etcdlock/token.go", run: "TestRevisionTooGreat",
		old: "	if revision > maxRevision {", new: "	if false && revision > maxRevision {",
	},
}
