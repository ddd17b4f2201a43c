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
}
