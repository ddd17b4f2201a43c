//go:build mutants

package mutant

var mysqlSafetyMutants = []mutant{
	{
		breaks: "mysqllock: a holder is told of the end of its connection, and not by the next ping",
		file:   "mysqllock/link.go", run: "TestSession/Tells",
		old: "return c.ResetSession(l.Context())", new: "return nil",
	},
	{
		breaks: "internal/life: a call ends within the time in which Acquire returns",
		file:   "internal/life/call.go", run: "TestMoment",
		old: "Moment = driver.CancelTimeout / 2", new: "Moment = 2 * driver.CancelTimeout",
	},
	{
		breaks: "internal/life: the end of a call says that the server has not answered, and not that somebody cancelled",
		file:   "internal/life/call.go", run: "TestDetached",
		old: "func() { cancel(unanswered(ctx)) }", new: "func() { cancel(nil) }",
	},
}
