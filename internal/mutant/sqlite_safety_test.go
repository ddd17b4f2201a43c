//go:build mutants

package mutant

var sqliteSafetyMutants = []mutant{
	{
		breaks: "sqlitelock: a full disk is an outage",
		file:   "sqlitelock/schema.go", run: "TestFullDisk",
		old: `fmt.Errorf("%w: %s: %w; make room (%w)", driver.ErrUnavailable, d.path,`, new: `fmt.Errorf("%s: %w; make room (%w)", d.path,`,
	},
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
		old: "		case wasKeptOut(was, now, waiter):",
		new: "		case true || wasKeptOut(was, now, waiter):",
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
		old: "cancelWait = driver.CancelTimeout / 4",
		new: "cancelWait = driver.CancelTimeout * 4",
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
		old: "case errors.Is(err, context.Cause(ctx)) && took > slowAnswer:",
		new: "case false:",
	},
	{
		breaks: "sqlite: another user can't open the files that are created",
		file:   "sqlitelock/files.go", run: "TestMode|TestReaderBlocksNobody",
		old: "f.Chmod(mode)",
		new: "f.Chmod(mode|0o044)",
	},
	{
		breaks: "sqlite: the files beside a readable database can't be read",
		file:   "sqlitelock/files.go", run: "TestMode",
		old: "readWriteClasses(db.Mode().Perm()) | 0o600",
		new: "db.Mode().Perm()",
	},
	{
		breaks: "sqlite: SQLite creates none of the files, whose permissions would be others",
		file:   "sqlitelock/schema.go", run: "TestMode",
		old: "\tif size(d.path) > 0 {\n\t\treturn nil\n\t}",
		new: "\tif size(d.path) >= 0 {\n\t\treturn d.makeFile(\"\")\n\t}",
	},
	{
		breaks: "sqlite: a shared file belongs to the folder's group",
		file:   "sqlitelock/files.go", run: "TestMode",
		old: "if mode&0o060 != 0 {",
		new: "if mode == 0 {",
	},
	{
		breaks: "sqlite: a link in the place of a file beside the database is not followed",
		file:   "sqlitelock/os_linux.go", run: "TestPlantedLink",
		old: "fi, err := os.Lstat(path)",
		new: "fi, err := os.Stat(path)",
	},
	{
		breaks: "sqlite: a database that was deleted in use is not created again",
		file:   "sqlitelock/schema.go", run: "TestDeletedInUse",
		old: "\tif err := d.checkDeleted(); err != nil {\n\t\treturn nil, err\n\t}\n",
		new: "",
	},
	{
		breaks: "sqlite: a log that was deleted in use is noticed by who uses it",
		file:   "sqlitelock/write.go", run: "TestDeletedInUse",
		old: "\tfor i, suffix := range suffixes {",
		new: "\tfor i, suffix := range suffixes[:1] {",
	},
	{
		breaks: "the state folder belongs to its user",
		file:   "cmd/snib/internal/backend/backend.go", run: "TestStateFolder", pkg: "cmd/snib",
		old: "case info.Mode().Perm()&0o022 != 0:",
		new: "case false:",
	},
	{
		breaks: "snib doctor: a file that others may read is found",
		file:   "cmd/snib/internal/backend/examine_file.go", run: "TestScripts/sqlite", pkg: "cmd/snib",
		old: "\t\t\tdefault:\n\t\t\t\treturn Finding{\"permissions\"",
		new: "\t\t\tcase 0o777:\n\t\t\t\treturn Finding{\"permissions\"",
	},
	{
		breaks: "snib doctor: a server that asks for no password is found",
		file:   "cmd/snib/internal/backend/examine_transport.go", run: "TestTransportFindings",
		old: "t.login || t.isSocket()",
		new: "true",
	},
	{
		breaks: "snib doctor: a connection that is not encrypted is found",
		file:   "cmd/snib/internal/backend/examine_transport.go", run: "TestTransportFindings",
		old: "\tcase !t.tls:",
		new: "\tcase false:",
	},
	{
		breaks: "snib doctor: a server whose certificate is not verified is found",
		file:   "cmd/snib/internal/backend/examine_transport.go", run: "TestTransportFindings",
		old: "\tcase t.insecure:",
		new: "\tcase false:",
	},
	{
		breaks: "snib doctor: a password that others may read is found",
		file:   "cmd/snib/internal/backend/examine_transport.go", run: "TestTransportFindings",
		old: "info.Mode().Perm()&0o077 == 0",
		new: "info.Mode().Perm() != 0",
	},
	{
		breaks: "snib ls: no two names are listed alike",
		file:   "cmd/snib/internal/cli/ls.go", run: "TestListedNames",
		old: "if strings.HasPrefix(name, `\"`) {",
		new: "if false {",
	},
}
