//go:build mutants

package mutant

var metricsMutants = []mutant{
	{
		breaks: "a hold that nobody had is told to no trace",
		file:   "queue.go", run: "TestTraceIsNotToldOfHoldsThatNobodyHad",
		old: "	h.unaccepted = true\n", new: "",
	},
	{
		breaks: "a hold that was handed over is told of when it ends",
		file:   "queue.go", pkg: "metrics", run: "TestWaitsAndHolds",
		old: "	h.unaccepted = false\n", new: "",
	},
	{
		breaks: "the trace is told how many wait",
		file:   "queue.go", run: "TestTraceTellsEachHoldOnce",
		old: "	return q.waiters.length\n", new: "	return 0\n",
	},
	{
		breaks: "one more lock of a hold is told as such",
		file:   "locker.go", run: "TestTraceTellsEachHoldOnce",
		old: "joined: err == nil}", new: "joined: false}",
	},
	{
		breaks: "one more lock of a hold is told as such, also if both were asked for at once",
		file:   "keeper.go", run: "TestTraceTellsOfMergedHolds",
		old: "		return h, true, nil\n", new: "		return h, false, nil\n",
	},
	{
		breaks: "the trace gets the context of Acquire",
		file:   "locker.go", run: "TestTraceGetsTheContextOfAcquire",
		old: "WaitEndedEvent{Event: e, Context: ctx, ", new: "WaitEndedEvent{Event: e, ",
	},
	{
		breaks: "a loss that the store told of is no expiry",
		file:   "keeper.go", run: "TestTraceTellsTheKindOfLoss",
		old: "&lossError{err, LossRefused}", new: "&lossError{err, LossExpired}",
	},
	{
		breaks: "the margin of a renewal is what was left before it",
		file:   "keeper.go", run: "TestTraceTellsTheMarginOfARenewal",
		old: "margin := max(0, h.deadline().Left(now))", new: "margin := le.ttl",
	},
	{
		breaks: "the keys of the log are stable",
		file:   "trace.go", run: "TestLogKeys",
		old: `slog.String("loss", string(e.Loss))`, new: `slog.String("why", string(e.Loss))`,
	},
	{
		breaks: "a million names are no million series",
		file:   "metriclabel/classes.go", pkg: "metrics", run: "TestMillionNames",
		old: "class != Other && len(c.byClass) < c.limit", new: "class != Other",
	},
	{
		breaks: "a name is counted under its own class",
		file:   "metriclabel/classes.go", pkg: "metrics", run: "TestMillionNames",
		old: "k != nil && k.name == name", new: "k != nil",
	},
	{
		breaks: "names of numbers are folded",
		file:   "metriclabel/classes.go", pkg: "metrics", run: "TestResource|TestMillionNumberedNames",
		old: "next <= '9' && isSeparator(name[i])", new: "next <= '0' && isSeparator(name[i])",
	},
	{
		breaks: "no class breaks the scrape",
		file:   "metriclabel/classes.go", pkg: "metrics", run: "TestLabelsAreClean|TestInvalidNames",
		old: "strings.ToValidUTF8(text[:min(len(text), maxLength)], string(utf8.RuneError))", new: "text[:min(len(text), maxLength)]; _, _ = strings.ToUpper, utf8.RuneError",
	},
	{
		breaks: "a wait that its caller ended is no failure of the store",
		file:   "metriclabel/label.go", pkg: "metrics", run: "TestFailures",
		old: "		err = ctx.Err()\n", new: "		_ = ctx.Err()\n",
	},
	{
		breaks: "a renewal in the last third is late",
		file:   "metriclabel/buckets.go", pkg: "metrics", run: "TestRenewals",
		old: "renewal.TTL/3", new: "renewal.TTL/4",
	},
	{
		breaks: "a lock that is held twice is one hold in the metrics",
		file:   "metrics/collect.go", run: "TestHeldCountsHolds",
		old: "failed, r.joined.Load(), holdsEnded", new: "failed, holdsEnded",
	},
	{
		breaks: "a release of a hold that was lost counts as a loss",
		file:   "metrics/metrics.go", run: "TestReleases",
		old: "	case errors.Is(e.Err, snib.ErrLost):", new: "	case e.Err == errors.ErrUnsupported: // so",
	},
	{
		breaks: "locks without expiry are counted",
		file:   "metrics/survey.go", run: "TestSurvey",
		old: "			if h.Endless {", new: "			if h.Token == 1 {",
	},
	{
		breaks: "a survey's resources are bounded",
		file:   "metrics/survey.go", run: "TestSurvey",
		old: "len(found) >= c.resources.Most()", new: "len(found) >= 1000",
	},
	{
		breaks: "a survey that failed does not pass for a new one",
		file:   "metrics/survey.go", run: "TestSurvey",
		old: "		s.failures++\n		return\n", new: "		s.failures++\n",
	},
	{
		breaks: "a metric has the name that rules and dashboard ask for",
		file:   "metrics/collect.go", run: "TestNamedMetricsExist",
		old: `desc("late_renewals_total"`, new: `desc("renewals_late_total"`,
	},
	{
		breaks: "the span of a hold that is lost at once ends",
		file:   "metrics/otelmetrics/spans.go", run: "TestSpanOfHoldThatIsLostAtOnce",
		old: "if end, early := was.(holdEnd); early {", new: "if end, early := was.(holdEnd); early && end == (holdEnd{}) {",
	},
	{
		breaks: "one more lock of a hold has no span of its own",
		file:   "metrics/otelmetrics/spans.go", run: "TestSpansOfReentry",
		old: "if !e.Joined && e.Token != 0 {", new: "if e.Token != 0 {",
	},
	{
		breaks: "the audit line has no owner in it",
		file:   "cmd/snib/internal/cli/release.go", pkg: "cmd/snib", run: "TestScripts/release",
		old: "digest(h.Owner))", new: "h.Owner)",
	},
	{
		breaks: "a release by force is accounted for whatever --quiet says",
		file:   "cmd/snib/internal/cli/release.go", pkg: "cmd/snib", run: "TestScripts/release",
		old: "		r.audit(s, name, h, err)\n", new: "		if !r.quiet {\n			r.audit(s, name, h, err)\n		}\n",
	},
}
