//go:build linux

package nemesis

import (
	"slices"
	"time"

	"github.com/sniblock/snib/internal/history"
)

// A row says what happens to a lock under a fault. The page is generated from the rows, and
// runs are judged by them: what a row does not allow is a violation.
type row struct {
	fault  string
	told   string // what the holder is told, and when
	next   string // who may get the lock, and when
	tokens string

	// The violations that are allowed, as in history.Allowance.
	allows     []history.Fact
	names      []string
	allowedFor time.Duration
	why        string
}

// allowances returns what the rows allow. Where a store may give a lock away, it may also give a
// kept lease away. The tokens of the holds that begin under it until the process is told are then
// smaller than that of the new holder, so that resources refuse them.
func allowances(rows []row) []history.Allowance {
	var all []history.Allowance
	for _, r := range rows {
		if len(r.allows) == 0 {
			continue
		}
		all = append(all, history.Allowance{Fault: r.fault, Facts: r.allows, Names: r.names, For: r.allowedFor, Why: r.why})
		if slices.Contains(r.allows, history.Exclusion) {
			all = append(all, history.Allowance{Fault: r.fault, Facts: []history.Fact{history.Order}, Names: []string{keptName},
				For: r.allowedFor, Why: r.why})
		}
	}
	return all
}

// keptName is the lock whose leases are kept.
const keptName = "kept"

// withRows returns rows in which others replace the rows of the same faults, or are appended.
func withRows(rows []row, others ...row) []row {
	rows = slices.Clone(rows)
	for _, o := range others {
		if i := slices.IndexFunc(rows, func(r row) bool { return r.fault == o.fault }); i >= 0 {
			rows[i] = o
		} else {
			rows = append(rows, o)
		}
	}
	return rows
}

const (
	inOrder  = "in order"
	byClock  = "in order if the clock is right"
	atOnce   = "others, at once"
	atEnd    = "others, at the end of the lease"
	hinted   = "that it is lost, at once"
	renewed  = "that it is lost, by its next renewal"
	before   = "that it is lost, before its lease ends"
	nothing  = "nothing: it keeps the lock"
	noHolder = "nobody is left to be told"
	again    = "a host that asks just after the death of another one runs the tick again"
)

// givenAway are the facts that are violated if a store gives a lock away while it is held.
var givenAway = []history.Fact{history.Exclusion, history.Early, history.Twice}

// unbounded is longer than all runs.
const unbounded = 1000 * time.Hour

// renewalBound is the time within which a holder has certainly tried to renew its lease.
const renewalBound = 4 * time.Second

// hintBound is the time within which a holder is told that its lease was broken if the store
// reports it at once. The longest leases are renewed later.
const hintBound = 2 * time.Second

// hintRow and renewalRow say what happens to a hold that is broken if
// [driver.Info].TellsLoss is set, and if it is not.
var (
	hintRow = row{
		fault: "break", told: hinted, next: atOnce, tokens: inOrder,
		allows: givenAway, allowedFor: hintBound, why: "an operator gives the lock away before its holder is told",
	}
	renewalRow = row{
		fault: "break", told: renewed, next: atOnce, tokens: inOrder,
		allows: givenAway, allowedFor: renewalBound, why: "an operator gives the lock away before its holder is told",
	}
)

// leaseRows are the rows of stores whose leases have their own TTL, and that report
// a loss to the holder.
var leaseRows = []row{
	{fault: history.KillWorker, told: noHolder, next: atEnd, tokens: inOrder},
	{fault: history.StopWorker, told: "that it is lost, when it goes on, if its lease is over", next: atEnd, tokens: inOrder},
	hintRow,
}

// networkRows are the rows of set-ups with proxies.
var networkRows = []row{
	{fault: "cut", told: nothing, next: "nobody", tokens: inOrder},
	{fault: "sever", told: before, next: atEnd, tokens: inOrder},
	{fault: "stall", told: before, next: atEnd, tokens: inOrder},
}

// serverRows are the rows of a server that keeps what it has acknowledged.
var serverRows = []row{
	{fault: "kill-server", told: before + ", unless the server is back by then", next: atEnd, tokens: inOrder},
	{fault: "stop-server", told: before, next: "others, when the server goes on", tokens: inOrder},
}

// diskRows are the rows of a server that must lose nothing when its disk fails.
var diskRows = []row{
	{fault: "fsync", told: before + ", unless the server is back by then", next: atEnd, tokens: inOrder},
}

var sqliteRows = withRows(leaseRows, renewalRow,
	row{fault: history.KillWorker, told: noHolder, next: atOnce, tokens: inOrder,
		allows: []history.Fact{history.Twice}, allowedFor: interval, why: again},
	row{fault: "disk-full", told: before + ", unless there is room by then", next: "others, when there is room", tokens: inOrder},
)

// flushRow says what happens to holds whose keys are deleted.
var flushRow = row{
	fault: "flush", told: renewed, next: atOnce, tokens: byClock,
	allows: givenAway, allowedFor: renewalBound, why: "who deletes the keys of locks gives them away",
}

var redisAOFRows = withRows(slices.Concat(leaseRows, networkRows, serverRows, diskRows),
	row{fault: "kill-session", told: nothing, next: "nobody", tokens: inOrder},
	flushRow,
)

var redisRows = withRows(slices.DeleteFunc(slices.Clone(redisAOFRows), func(r row) bool { return r.fault == "fsync" }),
	row{fault: "kill-server", told: renewed, next: "others, when the leases that may be forgotten are over", tokens: byClock},
)

var sentinelRows = slices.Concat(leaseRows, []row{
	{fault: "kill-server", told: before + ", unless there is a master by then that knows it", next: "others, when the leases that may be forgotten are over", tokens: byClock},
	{fault: "stop-server", told: before + ", unless there is a master by then that knows it", next: "others, when the leases that may be forgotten are over", tokens: byClock},
	{fault: "failover", told: nothing, next: "others, when the leases that may be forgotten are over", tokens: byClock},
	flushRow,
})

var clusterRows = slices.Concat(leaseRows, []row{
	{fault: "kill-server", told: before + ", unless there is a master by then that knows it", next: "others, when the leases that may be forgotten are over", tokens: byClock},
	{fault: "failover", told: nothing, next: "others, when the leases that may be forgotten are over", tokens: byClock},
	{fault: "move-slot", told: nothing, next: "others, when the leases that may be forgotten are over", tokens: inOrder},
	flushRow,
})

var redlockRows = slices.Concat(leaseRows, []row{
	{fault: "cut", told: nothing, next: "nobody", tokens: inOrder},
	{fault: "sever", told: nothing + ", while a majority answers", next: "nobody", tokens: inOrder},
	{fault: "stall", told: nothing + ", while a majority answers", next: "nobody", tokens: inOrder},
	{fault: "kill-server", told: nothing + ", while a majority remembers", next: "nobody", tokens: inOrder},
	{fault: "stop-server", told: nothing + ", while a majority answers", next: "nobody", tokens: inOrder},
	{fault: "flush", told: nothing + ", while a majority remembers", next: "nobody", tokens: inOrder},
})

var pgRows = withRows(slices.Concat(leaseRows, networkRows, serverRows, diskRows),
	row{fault: "kill-session", told: nothing, next: "nobody", tokens: inOrder},
)

var mysqlRows = withRows(pgRows, renewalRow)

// The rows of a primary that its replica replaces.
var (
	promoteRows = withRows(leaseRows, row{fault: "promote", told: nothing, next: atEnd, tokens: inOrder})
	lagRows     = withRows(leaseRows, row{
		fault: "promote", told: renewed, next: atOnce, tokens: byClock,
		allows: givenAway, allowedFor: renewalBound, why: "a replica that lags has forgotten leases",
	})
	mysqlPromoteRows = withRows(promoteRows, renewalRow)
	mysqlLagRows     = withRows(lagRows, renewalRow)
)

// sessionRows are the rows of stores where locks end with a session.
var sessionRows = withRows(leaseRows,
	row{fault: history.KillWorker, told: noHolder, next: "others, when the session ends", tokens: inOrder,
		allows: []history.Fact{history.Twice}, allowedFor: interval, why: again},
	row{fault: history.StopWorker, told: "that it is lost, when it goes on, if its session is over", next: "others, when the session ends", tokens: inOrder},
)

// connectionRows are the rows of stores where a session ends with its connection.
var connectionRows = withRows(slices.Concat(sessionRows, networkRows, serverRows),
	row{fault: "cut", told: hinted, next: "others, when the server knows", tokens: inOrder,
		allows: []history.Fact{history.Exclusion, history.Early, history.Twice}, allowedFor: 300 * time.Millisecond,
		why: "both ends hear at the same time that the connection is gone"},
	row{fault: "fsync", told: hinted, next: "others, when the server is back", tokens: inOrder,
		allows: []history.Fact{history.Early, history.Twice}, allowedFor: time.Second, why: "nothing of sessions outlives the server"},
	row{fault: "kill-server", told: hinted, next: "others, when the server is back", tokens: inOrder,
		allows: []history.Fact{history.Early, history.Twice}, allowedFor: time.Second, why: "nothing of sessions outlives the server"},
	row{fault: "kill-session", told: hinted, next: atOnce, tokens: inOrder,
		allows: []history.Fact{history.Exclusion, history.Early, history.Twice}, allowedFor: 300 * time.Millisecond,
		why: "an operator gives the lock away before its holder is told"},
)

// pgSessionRows are those of advisory locks, which nobody can break.
var pgSessionRows = slices.DeleteFunc(slices.Clone(connectionRows), func(r row) bool { return r.fault == "break" })

var zkRows = withRows(slices.Concat(sessionRows, networkRows, serverRows),
	row{fault: "cut", told: "that it is lost, unless KeepSuspended is set", next: "others, when the session ends", tokens: inOrder},
	row{fault: "kill-server", told: "that it is lost if it was its server, unless KeepSuspended is set", next: "others, when the session ends", tokens: inOrder},
	row{fault: "stop-server", told: "that it is lost if it was its server, unless KeepSuspended is set", next: "others, when the session ends", tokens: inOrder},
	row{fault: "partition", told: "that it is lost if its server has no majority any more, unless KeepSuspended is set", next: "others, when the session ends", tokens: inOrder},
	row{fault: "stop-all", told: "that it is lost, when its session may be over", next: "others, when the servers go on", tokens: inOrder},
)

var etcdRows = withRows(slices.Concat(sessionRows, networkRows, serverRows),
	row{fault: "kill-server", told: nothing, next: "others, when the session ends", tokens: inOrder},
	row{fault: "stop-server", told: nothing, next: "others, when the session ends", tokens: inOrder},
	row{fault: "partition", told: nothing + ", if it reaches the majority in time", next: "others, when the session ends", tokens: inOrder},
	row{fault: "kill-session", told: hinted, next: atOnce, tokens: inOrder,
		allows: givenAway, allowedFor: hintBound, why: "an operator gives the lock away before its holder is told"},
)

// The rows of set-ups whose clocks are changed.
var (
	forwardRows = withRows(networkRows, row{
		fault: string(forward), told: renewed, next: atOnce, tokens: inOrder,
		allows: givenAway, allowedFor: renewalBound, why: "leases end by the server's clock",
	})
	redlockForwardRows = withRows(networkRows, row{
		fault: string(forward), told: nothing + ", while a majority that knows it has the right time", next: "nobody, or others at once", tokens: inOrder,
		allows: givenAway, allowedFor: renewalBound, why: "a hold that a bare majority knows rests on the clock of each of them",
	})
	backRows = withRows(networkRows, row{
		fault: string(back), told: nothing, next: "others, when it is released; at the end of the lease by that clock if its holder died", tokens: inOrder,
		allows: []history.Fact{history.Stuck, history.Leftover}, names: []string{"minhold", "cron", "delay"}, allowedFor: unbounded, why: "keys end by the server's clock",
	})
	// sqlBackRows are the rows of stores where a request for the lock ends what lasts too long.
	// Nobody requests a lock any more when all workers have ended.
	sqlBackRows = withRows(networkRows,
		row{fault: history.KillWorker, told: noHolder, next: atEnd + "; if the clock is set back, about one TTL after the next request", tokens: inOrder},
		row{
			fault: string(back), told: nothing, next: "others, when it is released; about one TTL after the next request if its holder died", tokens: inOrder,
			allows: []history.Fact{history.Leftover}, allowedFor: unbounded, why: "listings don't write, so they show the later end until the next request",
		},
	)
	redisBackRows = withRows(slices.Concat(backRows, serverRows), row{
		fault: "kill-server", told: renewed, next: "others, when the leases that may be forgotten are over", tokens: "go back with the clock",
		allows: []history.Fact{history.Order}, allowedFor: unbounded, why: "a server that remembers nothing counts tokens by its clock",
	})
)
