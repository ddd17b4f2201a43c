package mutant

// sqliteMutants are the mutants of sqlitelock.
var sqliteMutants = []mutant{
	{
		guarantee: "one holder", pkg: "sqlitelock",
		in:    "room.fits",
		old:   "return r.leases == 0",
		new:   "return true",
		tests: "TestProcesses",
	},
	{
		guarantee: "dead holders", pkg: "sqlitelock",
		in:    "sidecar.ended",
		old:   "return late || !s.locked(l.byte)",
		new:   "return late",
		tests: "TestKilledHolder",
	},
	{
		guarantee: "stopped holders", pkg: "sqlitelock",
		in:    "sidecar.ended",
		old:   "return late || !s.locked(l.byte)",
		new:   "return !s.locked(l.byte)",
		tests: "TestStoppedHolder",
	},
	{
		guarantee: "heirs keep the lock", pkg: "sqlitelock",
		in:    "sidecar.ended",
		old:   "late && s.locked(l.process)",
		new:   "late",
		tests: "TestInheritOutlivesWrapper",
	},
	{
		guarantee: "Acquire returns", pkg: "sqlitelock",
		in:    "removalWait",
		old:   "removalWait = driver.CancelTimeout * 3 / 4",
		new:   "removalWait = driver.CancelTimeout * 8",
		tests: "TestStoppedAtWork",
	},
	{
		guarantee: "an outage is not a holder", pkg: "sqlitelock",
		in:    "attempt.send",
		old:   "case errors.Is(err, context.Cause(ctx)) && took > slowAnswer:",
		new:   "case false:",
		tests: "TestStoppedAtWork",
	},
	{
		guarantee: "full stores", pkg: "sqlitelock",
		in:    "Driver.diskFullError",
		old:   `fmt.Errorf("%w: %s: %w; make room (%w)", driver.ErrUnavailable, d.path,`,
		new:   `fmt.Errorf("%s: %w; make room (%w)", d.path,`,
		tests: "TestFullDisk",
	},
	{
		guarantee: "restarted hosts", pkg: "sqlitelock",
		in:    "Driver.matches",
		old:   "return m.boot == d.boot && m.live == d.live",
		new:   `return m.boot != ""`,
		tests: "TestOtherBoot",
	},
	{
		guarantee: "detached leases outlive restarts", pkg: "sqlitelock",
		in:    "deleteProcessLeases",
		old:   " WHERE mode IN (0, 1)",
		new:   "",
		tests: "TestDetachedOutlivesBoot",
	},
	{
		guarantee: "replaced files", pkg: "sqlitelock",
		in:    "Driver.checkIntact",
		old:   "for i, suffix := range suffixes {\nif err := checkSameFile(",
		new:   "for i, suffix := range suffixes[:0] {\nif err := checkSameFile(",
		tests: "TestReplaced",
	},
	{
		guarantee: "unsafe stores", pkg: "sqlitelock",
		in:    "networkFileSystem",
		old:   "case unix.NFS_SUPER_MAGIC:",
		new:   "case 1:",
		tests: "TestNetwork",
	},
	{
		guarantee: "private files", pkg: "sqlitelock",
		in:    "Driver.makeFile",
		old:   "f.Chmod(mode)",
		new:   "f.Chmod(mode|0o044)",
		tests: "TestMode",
	},
}
