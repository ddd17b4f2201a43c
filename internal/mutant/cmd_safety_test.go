//go:build mutants

package mutant

var cmdSafetyMutants = []mutant{
	// These break what the command promises about signals, outages and secrets.
	{
		breaks: "snib: names in JSON can't upset a terminal",
		file:   "cmd/snib/internal/cli/output.go", run: "TestMarshalTerminal",
		old: "case r == '\\n' || unicode.IsGraphic(r):", new: "case r == '\\n' || unicode.IsGraphic(r), true:",
	},
	{
		breaks: "snib: a password that is not encoded is not taken for other parts of a URL",
		file:   "cmd/snib/internal/backend/redisurl.go", run: "TestNoPartOfAPassword",
		old: `strings.Contains(path+query, "@")`,
		new: `strings.Contains(path+query, "@") && false`,
	},
	{
		breaks: "snib: a parameter that there is not is not repeated",
		file:   "cmd/snib/internal/backend/redisurl.go", run: "TestNoPartOfAPassword",
		old: `return nil, fmt.Errorf("%w URL: it has a parameter that there is not; there are %s", ErrConfig, strings.Join(names, ", "))`,
		new: `return nil, fmt.Errorf("%w URL: there is no parameter %s; there are %s", ErrConfig, name, strings.Join(names, ", "))`,
	},
	{
		breaks: "snib: a probe is not the lock itself",
		file:   "cmd/snib/internal/backend/redis.go", run: "TestProbe",
		old: `return all`,
		new: `return name`,
	},
	{
		breaks: "snib run: --kill-after counts from the signal",
		file:   "cmd/snib/internal/cli/supervisor.go", run: "TestKillAfter", pkg: "cmd/snib",
		old: "g.killIn(g.run.killAfter.value)",
		new: "g.killAt = time.Now().Add(g.run.killAfter.value)",
	},
	{
		breaks: "snib: a request that needs an answer soon says that there was none",
		file:   "cmd/snib/internal/cli/acquire.go", run: "TestUnavailable/etcd/hung", pkg: "cmd/snib",
		old: "	return context.WithTimeoutCause(context.Background(), feedbackInterval,\n		fmt.Errorf(\"%w: no answer within %v\", snib.ErrUnavailable, feedbackInterval))",
		new: "	return context.WithTimeout(context.Background(), feedbackInterval)",
	},
	{
		breaks: "snib run: who waits for a store that can't be opened is told why",
		file:   "cmd/snib/internal/cli/acquire.go", run: "TestReason/NotOpenFailed", pkg: "cmd/snib/internal/cli",
		old: "		failure = l.acq.lastFailure // there", new: "		_ = l.acq.lastFailure // there",
	},
	{
		breaks: "snib run: who waits for a store that hangs between two requests is told why",
		file:   "cmd/snib/internal/cli/acquire.go", run: "TestReason/FailedBefore", pkg: "cmd/snib/internal/cli",
		old: " && l.acq.lastFailure() == nil {", new: " {",
	},
	{
		breaks: "snib: a MySQL that hangs is named",
		file:   "cmd/snib/internal/backend/mysql.go", run: "TestUnavailable/mysql/hung", pkg: "cmd/snib",
		old: "if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {",
		new: "if false {",
	},
	{
		breaks: "snib run: --skip is for a lock that somebody holds",
		file:   "cmd/snib/internal/cli/run.go", run: "TestUnavailableIsNotBusy", pkg: "cmd/snib/internal/cli",
		old: "	if t, ok := errors.AsType[takenError](err); ok {",
		new: "	if r.skip {\n		return nil\n	}\n	if t, ok := errors.AsType[takenError](err); ok {",
	},
	{
		breaks: "snib wait: a lock is not free while the store withholds it",
		file:   "cmd/snib/internal/cli/wait.go", run: "TestRedis$/grace", pkg: "cmd/snib",
		old: "err != nil || grace <= 0",
		new: "true || err != nil || grace <= 0",
	},
	{
		breaks: "snib run: the first contact with a store is retried",
		file:   "cmd/snib/internal/cli/acquire.go", run: "TestFirstContact/redis", pkg: "cmd/snib",
		old: "if !again {",
		new: "if true || !again {",
	},
	{
		breaks: "snib run: a store with too many connections is waited for",
		file:   "cmd/snib/internal/backend/transient.go", run: "TestHerd$", pkg: "cmd/snib",
		old: `return isFull(err) || isPostgresError(err, "53") ||`,
		new: `return`,
	},
	{
		breaks: "snib: a store that hangs does not keep the command from ending",
		file:   "cmd/snib/internal/cli/cli.go", run: "TestCloseSoon",
		old: "case <-time.After(feedbackInterval):",
		new: "case <-time.After(time.Hour):",
	},
	{
		breaks: "snib: what a store says reaches the terminal escaped",
		file:   "cmd/snib/internal/cli/text.go", run: "TestHostileErrors",
		old: "case unicode.IsGraphic(r):",
		new: "case true:",
	},
	{
		breaks: "snib: ps does not show owners",
		file:   "cmd/snib/internal/cli/argv_linux.go", run: "TestHiddenOwner", pkg: "cmd/snib",
		old: "i > 0 && own[i-1] == ownerFlag",
		new: "false",
	},
	{
		breaks: "snib: the shell completes no name that it would have to quote",
		file:   "cmd/snib/internal/cli/completion.go", run: "TestScripts$/completion", pkg: "cmd/snib",
		old: "shellQuote(st.Name) == st.Name",
		new: "printable(st.Name) == st.Name",
	},
}
