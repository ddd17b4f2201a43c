//go:build mutants

package mutant

var sqliteSafetyMutants = []mutant{
	{
		breaks: "sqlite: a hold that heirs of a dead process keep is told from one of a living process",
		file:   "sqlitelock/inspect.go", run: "TestInheritOutlives",
		old: "l.mode == modeInherit && !d.side.locked(l.process)",
		new: "false && !d.side.locked(l.process)",
	},
	{
		breaks: "sqlite: the heirs of a hold are those that have its byte locked",
		file:   "sqlitelock/process_linux.go", run: "TestInheritOutlives",
		old: "f[4] != \"WRITE\"",
		new: "f[4] == \"WRITE\"",
	},
	{
		breaks: "snib leaks: what heirs of a dead process keep is not dead",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksKeeps", pkg: "cmd/snib",
		old: "\t\tcase h.Inherited:",
		new: "\t\tcase false && h.Inherited:",
	},
	{
		breaks: "snib leaks: --fix leaves alone what heirs of a dead process keep",
		file:   "cmd/snib/internal/cli/leaks.go", run: "TestLeaksKeeps", pkg: "cmd/snib",
		old: "\tcase leakOld, leakKept:",
		new: "\tcase leakOld:",
	},
	{
		breaks: "snib watch: a waiter that may have had the lock is not said to have given up",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatchWaiterGone", pkg: "cmd/snib/internal/cli",
		old: "\t\tcase excluded(was, now, waiter):",
		new: "\t\tcase true || excluded(was, now, waiter):",
	},
	{
		breaks: "snib watch: a reader may have had the lock beside other readers",
		file:   "cmd/snib/internal/cli/watch.go", run: "TestWatchWaiterGone", pkg: "cmd/snib/internal/cli",
		old: "\tcase was.Shared && waiter.Shared:\n\t\treturn false\n",
		new: "",
	},
	{
		breaks: "sqlite: an acquisition returns soon after its deadline while a stopped process keeps the turn",
		file:   "sqlitelock/write.go", run: "TestStoppedAtWork",
		old: "moment = driver.CancelTimeout / 4",
		new: "moment = driver.CancelTimeout * 4",
	},
	{
		breaks: "sqlite: an acquisition that may not wait ends while a stopped process keeps the turn",
		file:   "sqlitelock/acquire.go", run: "TestStoppedAtWork",
		old: "err := a.d.do(bounded, o)",
		new: "err := a.d.do(ctx, o)",
	},
	{
		breaks: "sqlite: a deadline that ends without an answer does not mean that the lock is held",
		file:   "sqlitelock/acquire.go", run: "TestStoppedAtWork",
		old: "case errors.Is(err, context.Cause(ctx)) && took > slow:",
		new: "case false:",
	},
}
