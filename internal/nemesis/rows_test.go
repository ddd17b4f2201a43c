//go:build linux

package nemesis

import (
	"time"

	"github.com/sniblock/snib/internal/nemesis/history"
)

// A row says what becomes of a lock under a fault. The page is made of these, and runs are judged by them: what a row does not allow is a
// violation.
type row struct {
	fault  string
	told   string // what the holder is told, and when
	next   string // who may get the lock
	tokens string

	allows []history.Fact
	while  time.Duration // after the fault, as in history.Allowance
	why    string
}

// allowances are what rows allow.
func allowances(rows []row) []history.Allowance {
	var all []history.Allowance
	for _, r := range rows {
		if len(r.allows) > 0 {
			all = append(all, history.Allowance{Fault: r.fault, Facts: r.allows, For: r.while, Why: r.why})
		}
	}
	return all
}

const inOrder = "in order"

// The rows of stores whose leases have a TTL of their own.
var (
	rowKill  = row{fault: history.KillWorker, told: "nobody is left to be told", next: "others, at the end of the lease", tokens: inOrder}
	rowStop  = row{fault: history.StopWorker, told: "when it goes on, if its lease is over", next: "others, at the end of the lease", tokens: inOrder}
	rowBreak = row{
		fault: "break", told: "by its next renewal, or by a hint before", next: "others, at once", tokens: inOrder,
		allows: []history.Fact{history.Exclusion, history.Early, history.Twice}, while: longTTL/3 + time.Second,
		why: "who breaks a lock gives it away before its holder is told",
	}
	rowCut   = row{fault: "cut", told: "nothing: the connection is made anew", next: "nobody", tokens: inOrder}
	rowSever = row{fault: "sever", told: "before its lease ends", next: "others, at the end of the lease", tokens: inOrder}
	rowStall = row{fault: "stall", told: "before its lease ends", next: "others, at the end of the lease", tokens: inOrder}
	rowHang  = row{fault: "stop-server", told: "before its lease ends", next: "others, when the server goes on", tokens: inOrder}
)

var sqliteRows = []row{
	{fault: history.KillWorker, told: "nobody is left to be told", next: "others, at once", tokens: inOrder},
	rowStop,
	rowBreak,
}

var redisRows = []row{
	rowKill, rowStop, rowBreak, rowCut, rowSever, rowStall, rowHang,
	{
		fault: "kill-server", told: "nothing if the server is back before its lease ends", next: "others, when the longest TTL in use is over", tokens: "in order if the clock is right",
	},
	{
		fault: "flush", told: "by its next renewal", next: "others, at once", tokens: "in order if the clock is right",
		allows: []history.Fact{history.Exclusion, history.Early, history.Twice}, while: longTTL/3 + time.Second,
		why: "who deletes keys of locks gives them away",
	},
}
