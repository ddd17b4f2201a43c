//go:build mutants

package mutant

var etcdMutants = []mutant{
	{
		breaks: "etcdlock: a session counts from when a keep-alive was sent",
		file:   "etcdlock/session.go", run: "TestStartIsSendTime",
		old: "	start := driver.Now() // before the request: the deadline must not be late\n	err := s.exchange(stream)",
		new: "	err := s.exchange(stream)\n	start := driver.Now()",
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
		old: "		if noLease(err) {", new: "		if false && noLease(err) {",
	},
	{
		breaks: "etcdlock: holders are told that their session is over",
		file:   "etcdlock/session.go", run: "TestRevoked",
		old: "	for h := range holds {\n		h.lose(why)\n	}", new: "	_ = holds",
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
		old: "	if err := a.d.exists(ctx, a.key, a.revision); err != nil {", new: "	if err := error(nil); err != nil {",
	},
	{
		breaks: "etcdlock: a waiter whose key was deleted begins anew",
		file:   "etcdlock/line.go", run: "TestKeyDeleted",
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
		old: "	if a.sent {\n		ctx, cancel", new: "	if false {\n		ctx, cancel",
	},
	{
		breaks: "etcdlock: a request that was given up and comes true later is taken back",
		file:   "etcdlock/acquire.go", run: "TestLateRequest",
		old: "err != nil || a.unsure {", new: "err != nil {",
	},
	{
		breaks: "etcdlock: a release that etcd has not heard of is said again",
		file:   "etcdlock/lease.go", run: "TestReleaseUnheard",
		old: "		h.sweepLater()\n		return explain(err)", new: "		return explain(err)",
	},
	{
		breaks: "etcdlock: a request that was repeated, and comes true when all is over, is taken back",
		file:   "etcdlock/acquire.go", run: "TestLateRepeat",
		old: "twice: a.unsure, ", new: "",
	},
	{
		breaks: "etcdlock: a lost answer is found again",
		file:   "etcdlock/call.go", run: "TestLostAnswers",
		old: "code == codes.Unavailable || ", new: "",
	},
	{
		breaks: "etcdlock: a release whose answer was lost is no loss",
		file:   "etcdlock/lease.go", run: "TestLostAnswers",
		old: "	case !there && !h.unsure:", new: "	case !there:",
	},
	{
		breaks: "etcdlock: a release says so if the key was gone",
		file:   "etcdlock/lease.go", run: "TestIsOwner",
		old: "	return err == nil && answer.Deleted > 0, err", new: "	return err == nil && answer.Deleted >= 0, err",
	},
	{
		breaks: "etcdlock: a renewal looks whether the key is there",
		file:   "etcdlock/lease.go", run: "TestConformance$/^Break$",
		old: "			} else if !h.answered(answer.Responses[i]) {", new: "			} else if h.answered(answer.Responses[i]); false {",
	},
	{
		breaks: "etcdlock: IsOwner never holds for a hold of somebody else",
		file:   "etcdlock/lease.go", run: "TestIsOwner",
		old: "clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), \"<\", 0)", new: "clientv3.Compare(clientv3.CreateRevision(prefixOf(name)), \"=\", 0)",
	},
	{
		breaks: "etcdlock: MinHold outlives the process",
		file:   "etcdlock/lease.go", run: "TestMinHoldOutlivesProcess",
		old: "h.note.text(true), clientv3.WithLease(keeper.ID))", new: "h.note.text(true), clientv3.WithLease(h.s.id))",
	},
	{
		breaks: "etcdlock: a watch that hangs costs seconds",
		file:   "etcdlock/line.go", run: "TestDeafWatch",
		old: "		timer.Reset(quiet)", new: "		timer.Reset(time.Hour)",
	},
	{
		breaks: "etcdlock: a process watches a name once",
		file:   "etcdlock/line.go", run: "TestOneWatch",
		old: "		d.lines.byName[name] = l\n", new: "",
	},
	{
		breaks: "etcdlock: names that begin alike are different locks",
		file:   "etcdlock/queue.go", run: "TestNames",
		old: "	return strings.IndexByte(string(key[len(name)+1:]), '/') < 0", new: "	return true",
	},
	{
		breaks: "etcdlock: a key that is no lock is told of",
		file:   "etcdlock/queue.go", run: "TestNoLock",
		old: "		if e.note.Slots != n.Slots || e.lease == 0 {", new: "		if e.note.Slots != n.Slots {",
	},
	{
		breaks: "etcdlock: who writes is alone",
		file:   "etcdlock/queue.go", run: "TestConformance$/^Shared$",
		old: "	f.alone = f.alone || !e.note.Shared && e.note.Slots == 0\n", new: "",
	},
	{
		breaks: "etcdlock: a semaphore has no more room than it says",
		file:   "etcdlock/queue.go", run: "TestConformance$/^Slots$",
		old: "return f.holders < n.Slots", new: "return f.holders <= n.Slots",
	},
	{
		breaks: "etcdlock: a stranger's lock counts",
		file:   "etcdlock/queue.go", run: "TestStrangers$",
		old: "			e, _ := entryOf(kv)\n			q = append(q, e)", new: "			if e, _ := entryOf(kv); e.note.Format == 1 {\n				q = append(q, e)\n			}",
	},
	{
		breaks: "etcd: two leases of one hold are renewed together, and spoil nothing for those beside them",
		file:   "etcdlock/lease.go", run: "TestRenewTwice",
		old: "if _, known := places[h]; !known {", new: "if true {",
	},
	{
		breaks: "etcdlock: a lock that is taken over and over leaves one dead key",
		file:   "etcdlock/nonce.go", run: "TestKeysAgain",
		old: "	n.free = append(n.free, nonce)\n", new: "",
	},
	{
		breaks: "etcdlock: a key that a request may put yet is none of a later one",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/PutUnheard",
		old: "				h.sweepLater()\n			case err == nil", new: "				h.sweepLater()\n				h.d.nonces.give(h.nonce)\n			case err == nil",
	},
	{
		breaks: "etcdlock: a key that a request which was given up may put yet is none of a later one",
		file:   "etcdlock/acquire.go", run: "TestKeysNotAgain/PutGivenUp",
		old: "			a.s.suspect(a.key)\n			return\n", new: "			a.s.suspect(a.key)\n",
	},
	{
		breaks: "etcdlock: a key whose release was not answered is none of a later one",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/DeleteUnheard",
		old: "err == nil && !h.unsure && h.req.MinHold == 0:", new: "err == nil && h.req.MinHold == 0:",
	},
	{
		breaks: "etcdlock: a key that MinHold keeps is none of a later request",
		file:   "etcdlock/lease.go", run: "TestKeysNotAgain/MinHold",
		old: "err == nil && !h.unsure && h.req.MinHold == 0:", new: "err == nil && !h.unsure:",
	},
	{
		breaks: "etcdlock: the key of an earlier hold, in a watch that lags, is not that of a request",
		file:   "etcdlock/line.go", run: "TestOldKeyInView",
		old: "i >= 0 && l.queue[i].revision == w.revision", new: "i >= 0",
	},
	{
		breaks: "etcdlock: a watch that hangs is seen to, although the keys are the same again",
		file:   "etcdlock/line.go", run: "TestDeafAgain",
		old: "a.key == b.key && a.revision == b.revision", new: "a.key == b.key",
	},
	{
		breaks: "etcdlock: a hold that was lost stays so, although its key comes again",
		file:   "etcdlock/lease.go", run: "TestLateRepeatLost",
		old: "	if h.twice {\n		answer, err", new: "	if false {\n		answer, err",
	},
	{
		breaks: "etcdlock: the tokens of a block lie below those of the next hold",
		file:   "etcdlock/token.go", run: "TestBlock$",
		old: "return uint64(revision) << places", new: "return uint64(revision)",
	},
	{
		breaks: "etcdlock: an owner that asks again gets no token that was not reserved",
		file:   "etcdlock/lease.go", run: "TestBlockAgain",
		old: "Tokens: min(h.block, blockOf(req))", new: "Tokens: blockOf(req)",
	},
	{
		breaks: "etcdlock: the holder of a block is told of waiters elsewhere",
		file:   "etcdlock/line.go", run: "TestNobodyStarves",
		old: "	if len(l.holds) == 0 {\n		return\n	}", new: "	if len(l.holds) >= 0 {\n		return\n	}",
	},
	{
		breaks: "etcdlock: the holder of a block is told of those who were there before it",
		file:   "etcdlock/line.go", run: "TestWanted$",
		old: "	l.holds[h] = struct{}{}\n	l.tellHolds()\n", new: "	l.holds[h] = struct{}{}\n",
	},
	{
		breaks: "etcdlock: a waiter of the same process is no other process",
		file:   "etcdlock/line.go", run: "TestWanted$",
		old: " && e.lease != int64(h.s.id)", new: "",
	},
	{
		breaks: "etcdlock: a reader is in no other reader's way",
		file:   "etcdlock/line.go", run: "TestWantedShared",
		old: "	_, waiting := l.queue.split()\n", new: "	waiting := l.queue\n",
	},
	{
		breaks: "etcdlock: who can't be told of others does not hand over at will",
		file:   "etcdlock/line.go", run: "TestWantedDeaf/Fails",
		old: "	for h := range l.holds {\n		h.tellWanted()\n	}\n	if refused(err) {", new: "	if refused(err) {",
	},
	{
		breaks: "etcdlock: a hold with one token costs no watch",
		file:   "etcdlock/acquire.go", run: "TestWatchForBlock",
		old: "	if h.block > 1 {", new: "	if h.block > 0 {",
	},
	{
		breaks: "etcdlock: the watch of a hold with a block ends with it",
		file:   "etcdlock/line.go", run: "TestWatchForBlock",
		old: "	if attends {\n		l.letGo()\n	}", new: "	_ = attends",
	},
	{
		breaks: "etcdlock: IsOwner holds under each token of a block",
		file:   "etcdlock/lease.go", run: "TestIsOwnerBlock",
		old: "return first <= token && token-first < uint64(h.block)", new: "return first == token",
	},
	{
		breaks: "etcdlock: IsOwner never holds under a token that was not reserved",
		file:   "etcdlock/lease.go", run: "TestIsOwnerBlock",
		old: "token-first < uint64(h.block)", new: "Revision(token) == h.revision",
	},
	{
		breaks: "etcdlock: a revision that leaves no room for tokens is refused",
		file:   "etcdlock/token.go", run: "TestRevisionTooGreat",
		old: "	if revision > maxRevision {", new: "	if false && revision > maxRevision {",
	},
}
