//go:build mutants

package mutant

// redlockSafetyMutants are those of what Redlock says when nobody gets a lock, and of what others can do to its nodes.
var redlockSafetyMutants = []mutant{
	{
		breaks: "Redlock: nodes that take no part are unavailable",
		file:   "redislock/redlock/silence.go", run: "TestBlankNodesAreUnavailable|TestAdmission$",
		old: "	if len(d.nodes)-denied >= d.params.Quorum() {", new: "	if false {",
	},
	{
		breaks: "Redlock: a split vote is nobody's hold",
		file:   "redislock/redlock/acquire.go", run: "TestSplitVote",
		old: "func (e *splitError) Is(target error) bool { return target == driver.ErrUnavailable }",
		new: "func (e *splitError) Is(target error) bool { return target == driver.ErrHeld }",
	},
	{
		breaks: "Redlock: a deadline is kept while nodes hang",
		file:   "redislock/redlock/acquire.go", run: "TestDeadlineOnHungNodes",
		old: "	parting    = driver.CancelTimeout * 4 / 5", new: "	parting    = withdrawal",
	},
	{
		breaks: "Redlock: a wait that ends says that the nodes were unavailable",
		file:   "redislock/redlock/acquire.go", run: "TestBlankNodesAreUnavailable",
		old: "		return nil, fmt.Errorf(\"%w: %w\", err, context.Cause(ctx))", new: "		return nil, context.Cause(ctx)",
	},
	{
		breaks: "Redlock: what a node stores is quoted in errors",
		file:   "redislock/redlock/silence.go", run: "TestReasonsOfNodes",
		old: "as %s\", driver.ErrInvalid, quoted(text))", new: "as %s\", driver.ErrInvalid, text)",
	},
	{
		breaks: "Redlock: a wrong password is no outage",
		file:   "redislock/redlock/silence.go", run: "TestOpenWithoutMajority",
		old: "			denied++", new: "",
	},
	{
		breaks: "Redlock: each node that takes no part has a reason",
		file:   "redislock/redlock/acquire.go", run: "TestReasonsOfNodes",
		old: "			errs[i] = keptOut(r.value)", new: "",
	},
}
