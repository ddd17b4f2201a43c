//go:build mutants

package mutant

var zketcdSafetyMutants = []mutant{
	{
		breaks: "zketcd zk: a hold that was told lost blocks nobody until Release",
		file:   "zklock/guard.go", run: "TestLostNotReleased|TestLeaseEnds",
		old: "		if left <= 0 {\n", new: "		if false && left <= 0 {\n",
	},
	{
		breaks: "zketcd zk: a hold whose renewals fail does not last with the session",
		file:   "zklock/guard.go", run: "TestLeaseEnds",
		old: "		case h.until.IsZero():\n			h.until = s.reliable(h.start)\n", new: "",
	},
	{
		breaks: "zketcd zk: a holder is told at once that its node was deleted",
		file:   "zklock/guard.go", run: "TestHolderDeleted",
		old: "			r.unseen = append(r.unseen, h)\n", new: "",
	},
	{
		breaks: "zketcd zk: a kept node whose time is over refuses nobody who does not want to wait",
		file:   "zklock/acquire.go", run: "TestMinHoldLapsed",
		old: "case a.req.NoWait && !turn.now:", new: "case a.req.NoWait:",
	},
	{
		breaks: "zketcd zk: a kept node whose time is over is shown as no hold",
		file:   "zklock/inspect.go", run: "TestMinHoldLapsed",
		old: " || c.lapsed(seen[i]) {", new: " {",
	},
	{
		breaks: "zketcd zk: a process that lives deletes its kept nodes although its session has ended",
		file:   "zklock/sweep.go", run: "TestMinHoldOutlivesSession",
		old: "		if o.kept && !", new: "		if false && !",
	},
}
