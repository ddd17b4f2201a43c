package mutant

// serveMutants are the mutants of the lock service and of its driver.
var serveMutants = []mutant{
	{
		guarantee: "holds of others", pkg: "serve",
		in:    "Service.find",
		old:   "owner.names(h.Owner) && ",
		new:   "",
		tests: "TestOtherOwners",
	},
	{
		guarantee: "the hold that was seen", pkg: "serve",
		in:    "Service.breakSeen",
		old:   "h.Token != msg.Token || ",
		new:   "",
		tests: "TestBreak",
	},
	{
		guarantee: "places of clients", pkg: "serve",
		in:    "place.detachLocked",
		old:   "p.timer = time.AfterFunc(p.s.opts.PlaceTimeout,",
		new:   "p.timer = time.AfterFunc(0,",
		tests: "TestPlaceIsKept",
	},
	{
		guarantee: "places end", pkg: "serve",
		in:    "place.detachLocked",
		old:   "p.giveUpLocked(errAbandoned)",
		new:   "_ = p",
		tests: "TestPlaceEnds",
	},
	{
		guarantee: "hidden owners", pkg: "serve",
		in:    "Service.lockOf",
		old:   "if isAdmin {",
		new:   "if isAdmin || true {",
		tests: "TestOwnersAreHidden",
	},
	{
		guarantee: "repeated requests", pkg: "serve",
		in:    "Service.get",
		old:   "p == nil && !msg.First",
		new:   "false",
		tests: "TestAnswerLost",
	},
	{
		guarantee: "grants that are given up", pkg: "serve",
		in:    "Service.find",
		old:   "&& !waits",
		new:   "&& (!waits || true)",
		tests: "TestGivenUpElsewhere",
	},
	{
		guarantee: "fresh leases", pkg: "serve",
		in:    "place.confirm",
		old:   "if !start.Before(arrived) {",
		new:   "if true {",
		tests: "TestGrantWhileAway",
	},
	{
		guarantee: "late requests", pkg: "serve",
		in:    "withdrawals.has",
		old:   "return ok",
		new:   "return ok && false",
		tests: "TestWithdrawn/Late",
	},
	{
		guarantee: "one waiter for a name", pkg: "serve",
		in:    "Service.serveQueue",
		old:   "head := q.places[0]",
		new:   "head := q.places[len(q.places)-1]",
		tests: "TestOneWaiterInTheStore",
	},
	{
		guarantee: "local access", pkg: "serve",
		in:    "localAccess.Authenticate",
		old:   "if !isLoopbackName(r.Host) {",
		new:   "if false {",
		tests: "TestLocalOnly",
	},
	{
		guarantee: "unsafe stores", pkg: "serve",
		in:    "New",
		old:   "info.Tenure == driver.TenureSession",
		new:   "false",
		tests: "TestSessionsAreRefused",
	},
}
