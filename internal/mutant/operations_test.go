//go:build mutants

package mutant

var operationsMutants = []mutant{
	// These break the operators' commands.
	{
		breaks: "snib leaks: a hold without an end is found",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksFindsEachKind", pkg: "cmd/snib",
		old: "\t\tcase h.Endless:",
		new: "\t\tcase false && h.Endless:",
	},
	{
		breaks: "snib leaks: a hold whose process is gone is found",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksFindsEachKind", pkg: "cmd/snib",
		old: "errors.Is(syscall.Kill(h.PID, 0), syscall.ESRCH)",
		new: "false",
	},
	{
		breaks: "snib leaks: what snib lock took outlives its process",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksFindsEachKind", pkg: "cmd/snib",
		old: "h.Holder.Label != lockLabel && ",
		new: "",
	},
	{
		breaks: "snib leaks: a hold that somebody renews is not dead",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksLeavesTheLivingAlone", pkg: "cmd/snib",
		old: "return now, !renewed",
		new: "return now, true || renewed",
	},
	{
		breaks: "snib leaks: a hold is watched until it would have been renewed",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksWatchesForRenewals",
		old: "return h.Left/3 + minSettle",
		new: "return minSettle",
	},
	{
		breaks: "snib leaks: --fix leaves alone what may be renewed yet",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksWatchesForRenewals",
		old: "return !k.maybeAlive",
		new: "return true || k.maybeAlive",
	},
	{
		breaks: "snib leaks: what is in motion is no leak",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksLookTwice",
		old: "\t\tif k, ok := l.confirm(k, st, later); ok {",
		new: "\t\tif k, ok := l.confirm(k, st, later); ok || true {",
	},
	{
		breaks: "snib leaks: a hold is dead also where the store takes its time to answer",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksWithSlowAnswers",
		old: "\t\tif k, ok := l.confirm(k, st, later); ok {",
		new: "\t\tif k, ok := l.confirm(k, st, max(later, time.Since(seen))); ok {",
	},
	{
		breaks: "snib watch: a lease that runs out during a look is lost",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatchSlowLook",
		old: "o.onSnapshot(was, now, time.Since(last))",
		new: "o.onSnapshot(was, now, began.Sub(last))",
	},
	{
		breaks: "snib leaks: a hold is the same only with the same token",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksLookTwice",
		old: "l.hold.Owner == other.hold.Owner && l.hold.Token == other.hold.Token",
		new: "l.hold.Owner == other.hold.Owner",
	},
	{
		breaks: "snib leaks: who waits for what nobody holds is stuck only after a while",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksLookTwice",
		old: "st.Waiters[0].Waited > stuckAfter",
		new: "st.Waiters[0].Waited > 0",
	},
	{
		breaks: "snib leaks: waiters behind a dead entry are found",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksFindsEachKind", pkg: "cmd/snib",
		old: "(l.isGone(w.Holder) || w.Silent > silentAfter)",
		new: "l.isGone(w.Holder)",
	},
	{
		breaks: "snib leaks: who has read yes frees what was found, and nothing else",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksAsks", pkg: "cmd/snib",
		old: `strings.TrimSpace(text) != "yes"`,
		new: `strings.TrimSpace(text) == "no"`,
	},
	{
		breaks: "snib leaks: foreign keys are deleted only if that was asked for",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksFindsEachKind", pkg: "cmd/snib",
		old: "return l.foreign && k.hold != nil",
		new: "return k.hold != nil",
	},
	{
		breaks: "redislock: a key of another library that ends by itself is none that was left",
		file:   "redislock/script/endless.lua", pkg: "redislock", run: "TestStrangers",
		old: "  if redis.call('PTTL', key) == -1 then",
		new: "  if redis.call('PTTL', key) ~= -2 then",
	},
	{
		breaks: "redislock: our own locks are not taken for those of others",
		file:   "redislock/stranger.go", run: "TestStrangers",
		old: "s != nil && !d.isOwnLock(ctx, e.key)",
		new: "s != nil",
	},
	{
		breaks: "redislock: each lock is listed once",
		file:   "redislock/list.go", run: "TestListOnce",
		old: "if s.Recorded && !recorded[s.Name] {",
		new: "if false {",
	},
	{
		breaks: "snib count: no step of a scan holds the server up",
		file:   "redislock/list.go", run: "TestManyLocks", pkg: "cmd/snib",
		old: "const scanCount = 500",
		new: "const scanCount = 1_000_000",
	},
	{
		breaks: "snib watch: a hold that ran out is lost, and not released",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatch$", pkg: "cmd/snib",
		old: "\t\tif h.Left > passed || h.Endless {",
		new: "\t\tif h.Left > 0 || h.Endless {",
	},
	{
		breaks: "snib watch: a hand-over is one event",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatch$", pkg: "cmd/snib",
		old: "len(ended) == 1 && len(begun) == 1 && ended[0].Left > passed",
		new: "len(ended) == 9",
	},
	{
		breaks: "snib watch: an outage of the store does not end it",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatchSurvivesAnOutage", pkg: "cmd/snib",
		old: "time.Since(last) > retryTimeout",
		new: "time.Since(last) > 0",
	},
	{
		breaks: "snib doctor: a setting that breaks a promise is told, and makes the exit code 1",
		file:   "cmd/snib/internal/backend/examine_sql.go", run: "TestDoctorPostgres", pkg: "cmd/snib",
		old: `values[3] != "off"`,
		new: `values[3] != "never"`,
	},
	{
		breaks: "snib doctor: a pooler before the server is noticed",
		file:   "cmd/snib/internal/backend/examine_sql.go", run: "TestDoctorPostgres", pkg: "cmd/snib",
		old: `newFinding("pooler", describePooler(pid == conn.Conn().PgConn().PID()), pid == conn.Conn().PgConn().PID(), Note,`,
		new: `newFinding("pooler", describePooler(true), true, Note,`,
	},
	{
		breaks: "snib explain: the guide is what the drivers say",
		file:   "cmd/snib/internal/cli/explain.go", run: "TestChoosing",
		old: "row := []string{i.Backend, f.Pause, f.Crash, f.Failover, f.Partition, f.ClockJump}",
		new: "row := []string{i.Backend, f.Pause, f.Crash, f.Partition, f.Failover, f.ClockJump}",
	},
	{
		breaks: "snib top: the terminal is given back as it was",
		file:   "cmd/snib/internal/cli/top.go", run: "TestTopOnATerminal", pkg: "cmd/snib",
		old: "\tv.AltScreen = true",
		new: "\tv.AltScreen = false",
	},
	{
		breaks: "snib watch: it rests, so that it loads a big store for a tenth of the time",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestObserverRests",
		old: "restFactor*min(took, tookBefore)", new: "0*min(took, tookBefore)",
	},
	{
		breaks: "snib watch: a store that hung once is looked at again soon",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestObserverRests",
		old: "restFactor*min(took, tookBefore)", new: "restFactor*max(took, tookBefore)",
	},
	{
		breaks: "snib top: a look that failed is none of those that were asked for",
		file:   "cmd/snib/internal/cli/top.go", run: "TestTopSurvivesAnOutage", pkg: "cmd/snib",
		old: "	}, t.reportOutage)", new: "	}, func(err error) { shown++; t.reportOutage(err) })",
	},
	{
		breaks: "snib ls: what a store lists before it fails is printed",
		file:   "cmd/snib/internal/cli/ls.go", run: "TestLsOfAHalf",
		old: "	if err == nil || len(all) > 0 {", new: "	if err == nil {",
	},
	{
		breaks: "snib ls: no time is shown that the store does not know",
		file:   "cmd/snib/internal/cli/ls.go", run: "TestHeldNotKnown",
		old: "	if first.Held != 0 {", new: "	if first.Token != 0 {",
	},
	// These break the doctor.
	{
		breaks: "snib doctor: of an etcd without a majority it names the members that are down",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestDoctorEtcd$/NoMajority", pkg: "cmd/snib",
		old: "	if list, err = fetchMembers(ctx, client, memberTimeout/3, clientv3.WithSerializable()); err == nil {",
		new: "	if list, err = fetchMembers(ctx, client, memberTimeout/3); err == nil {",
	},
	{
		breaks: "snib doctor: a list of ZooKeeper's servers that is closed to us is no failure",
		file:   "zklock/ensemble.go", run: "TestDoctorZooKeeper$", pkg: "cmd/snib",
		old: "return errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) }", new: "return errors.Is(err, zk.ErrNoNode) }",
	},
	{
		breaks: "snib doctor: a list of etcd's alarms that is closed to us is no failure",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestEtcdDenies",
		old: "	if c.alarms, err = client.AlarmList(ctx); err != nil && !etcdDenied(err) {", new: "	if c.alarms, err = client.AlarmList(ctx); err != nil {",
	},
	{
		breaks: "snib doctor: servers of ZooKeeper are asked by TLS where the URL asks for it",
		file:   "cmd/snib/internal/backend/examine_zk.go", run: "TestDoctorZooKeeper$", pkg: "cmd/snib",
		old: "	if secure != nil {\n		dial =", new: "	if false {\n		dial =",
	},
	{
		breaks: "snib doctor: a member of etcd that is down is named",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestDoctorEtcd$", pkg: "cmd/snib",
		old: "	if s == nil {\n		return []Finding{{check, Note,", new: "	if s == nil {\n		return []Finding{{check, Good,",
	},
	{
		breaks: "snib doctor: an etcd that is full is named, though it grants nothing any more",
		file:   "cmd/snib/internal/cli/doctor.go", run: "TestDoctorEtcd$/Full", pkg: "cmd/snib",
		old: "	case failed != nil && !hasUnmet(found):", new: "	case failed != nil:",
	},
	{
		breaks: "snib doctor: what else is found does not hide that the store does not let us",
		file:   "cmd/snib/internal/cli/doctor.go", run: "TestDoctorNoLock", pkg: "cmd/snib",
		old: "	case failed != nil && tellsMore(failed):", new: "	case failed != nil && tellsMore(failed) && !hasUnmet(found):",
	},
	{
		breaks: "snib doctor: a store that is full is not told from one that is silent by what was found",
		file:   "cmd/snib/internal/cli/doctor.go", run: "TestTellsMore",
		old: "return !backend.Answered(failed)", new: "return true",
	},
	{
		breaks: "snib doctor: a member of etcd that may not say how it is is not taken for dead",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestEtcdAsk$",
		old: "				c.denied[address] = true", new: "				c.denied[address] = false",
	},
	{
		breaks: "snib doctor: a cluster of etcd that may not be asked is not taken for dead",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestEtcdFindings",
		old: "	case len(c.denied) > 0: //", new: "	case len(c.denied) > 9: //",
	},
	{
		breaks: "snib doctor: with etcds:// nobody learns the token without TLS",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestDoctorEtcd$/TLS", pkg: "cmd/snib",
		old: "	if !c.secure {\n", new: "	if c.secure || true {\n",
	},
	{
		breaks: "snib doctor: members of etcd that follow different leaders are named",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestEtcdFindings",
		old: "len(leaders) != 1 || leaders[0]", new: "len(leaders) == 0",
	},
	{
		breaks: "snib doctor: a member of etcd that lags is named",
		file:   "cmd/snib/internal/backend/examine_etcd.go", run: "TestEtcdFindings",
		old: "behind <= maxEntriesBehind", new: "behind <= 10*maxEntriesBehind",
	},
	{
		breaks: "snib doctor: one server of an ensemble that has no list is not taken for all of it",
		file:   "cmd/snib/internal/backend/examine_zk.go", run: "TestZooKeeperSizeUnlisted",
		old: "	case !listed && members == 1", new: "	case listed && members == 1",
	},
	{
		breaks: "snib doctor: servers of different ensembles are named",
		file:   "cmd/snib/internal/backend/examine_zk.go", run: "TestDoctorZooKeeper/Alone", pkg: "cmd/snib",
		old: "	case leaders > 1:", new: "	case leaders > 9:",
	},
	{
		breaks: "snib doctor: a ZooKeeper whose old leader may outlive a session is named",
		file:   "cmd/snib/internal/backend/examine_zk.go", run: "TestZooKeeperFindings",
		old: "syncLimit <= maxSyncLimit", new: "syncLimit <= 2*maxSyncLimit",
	},
	{
		breaks: "snib doctor: a ZooKeeper in which anybody may free locks is named",
		file:   "cmd/snib/internal/backend/examine_zk.go", run: "TestZooKeeperFindings",
		old: `a.Scheme == "world" &&`, new: `a.Scheme == "ip" &&`,
	},
	{
		breaks: "snib doctor: a node of Redlock with a replica is named",
		file:   "cmd/snib/internal/backend/examine_redlock.go", run: "TestDoctorRedlock$", pkg: "cmd/snib",
		old: "				f.Verdict, f.Advice = Unmet, \"take", new: "				f.Verdict, f.Advice = Good, \"take",
	},
	{
		breaks: "snib doctor: a node of Redlock that is out is named, and its vote with it",
		file:   "cmd/snib/internal/backend/examine_redlock.go", run: "TestDoctorRedlock$", pkg: "cmd/snib",
		old: "		if n.State == redlock.NodeAdmitted {", new: "		if n.State != redlock.NodeRefused {",
	},
	{
		breaks: "snib doctor: a node of Redlock that denies us is not taken for dead",
		file:   "cmd/snib/internal/backend/examine_redlock.go", run: "TestNodeFinding",
		old: "		if Denied(n.Err) {", new: "		if !Denied(n.Err) {",
	},
	{
		breaks: "snib doctor: a server that has more than one vote is named",
		file:   "cmd/snib/internal/backend/examine_redlock.go", run: "TestRedlockFindings",
		old: "len(addrs) > 1", new: "len(addrs) > 9",
	},
	{
		breaks: "a wrong password on Redlock is told apart from a store that is out of reach",
		file:   "redlock/nomajority.go", pkg: "cmd/snib", run: "TestRedlock$/refused",
		old: "	if errors.As(err, &answer) {", new: "	if !errors.As(err, &answer) {",
	},
}
