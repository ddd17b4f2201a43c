//go:build linux

package nemesis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/servers"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/history"
)

// A setup is a store in a certain configuration, with the faults that it has there. What it does
// not allow is a violation.
type setup struct {
	name   string
	about  string
	start  func(*world) // starts servers, and sets the world's stores
	faults string       // their names, with spaces
	allows []history.Allowance

	// forgets is a fault after which the store counts tokens anew, or "".
	forgets string

	// untold says that the store does not tell the holder at once that its lease was broken.
	untold bool

	// brisk says that faults are short, and that there are no long pauses between them.
	brisk bool

	// settleTime is the time that its page allows after the heal, beyond TTL + 5 s, until all
	// workers make progress.
	settleTime time.Duration

	// deadWaiterTime is how long, according to its page, the store shows dead waiters of a lock
	// that nobody requests any more.
	deadWaiterTime time.Duration
}

// sentinelGrace is how long a master behind Sentinel grants nothing after it was promoted or
// restarted, with a reserve.
const sentinelGrace = 25 * time.Second

// redisQueue is how long Redis keeps a lock's queue after the last request for a place in it. A
// later request or release skips dead waiters. When all processes have ended, there is no such
// request, so dead waiters are shown until then. They block nobody.
const redisQueue = 30 * time.Second

// Groups of faults.
const (
	processes = "kill pause"
	network   = " reset cut late-cut"
	server    = " store-restart store-pause"
	forward   = servers.Forward
	back      = servers.Back
	served    = processes + " delay lose-answer" + network + server
)

// setups are all set-ups, in the order of the tables.
var setups = []setup{
	{name: "sqlite", about: "a file", start: startSQLite, faults: processes + " break disk-full", untold: true, allows: allow(again)},
	{name: "redis", about: "a server that saves nothing", start: startRedis(), faults: processes + " break kill-session flush" + network + server,
		allows: allow(flushed), settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redis-aof", about: "a server with appendfsync always", start: startRedis(always...), faults: processes + " break kill-session flush fsync" + network + server,
		allows: allow(flushed), settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "sentinel", about: "a master and a replica with min-replicas-to-write 1, and three Sentinels", start: startSentinel(minReplicas...), faults: processes + " break switch-over flush" + server,
		allows: allow(flushed), settleTime: sentinelGrace, deadWaiterTime: redisQueue},
	{name: "cluster", about: "three masters with a replica each", start: startCluster, faults: processes + " break failover switch-over move-slot flush",
		allows: allow(flushed), settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redlock", about: "five servers that save nothing", start: startRedlock(longTTL), faults: processes + " break flush" + network + server, settleTime: longTTL},
	{name: "redlock-brief", about: "five servers that save nothing, two of which may be killed at a time, with a longest TTL of 2.5 s", start: startRedlock(ttl + lockDelay),
		faults: "pause" + server, brisk: true, settleTime: longTTL},
	{name: "redlock-aof", about: "five servers with appendfsync always", start: startRedlock(longTTL, always...), faults: processes + " break flush" + network + server, settleTime: longTTL},
	{name: "pg", about: "rows of a server", start: startSQL("pg", servers.Postgres), faults: processes + " break kill-session fsync" + network + server},
	{name: "pgsession", about: "advisory locks of a server, which nobody can break", start: startSQL("pgsession", servers.Postgres), faults: processes + " kill-session fsync" + network + server,
		allows: allow(again, cutOff("reset"), cutOff("kill-session"), sessionsEnd("fsync"), sessionsEnd("store-restart"))},
	{name: "mysql", about: "rows of a server", start: startSQL("mysql", servers.MySQL), faults: processes + " break kill-session fsync" + network + server, untold: true},
	{name: "zk", about: "an ensemble of three", start: startZK("zk"), faults: processes + " break partition stop-all" + network + server, allows: allow(again)},
	{name: "zkkeep", about: "an ensemble of three, and KeepSuspended", start: startZK("zkkeep"), faults: processes + " break partition stop-all" + network + server, allows: allow(again)},
	{name: "etcd", about: "a cluster of three", start: startEtcd, faults: processes + " break partition kill-session" + network + server, allows: allow(again, givenAway("kill-session", hintBound))},
	{name: "pg-promote", about: "rows of a server with a synchronous standby", start: startPair("pg", servers.PostgresPair, true), faults: processes + " break failover"},
	{name: "pg-lag", about: "rows of a server with an asynchronous standby, which lags", start: startPair("pg", servers.PostgresPair, false), faults: processes + " break failover", allows: allow(forgotten)},
	{name: "mysql-promote", about: "rows of a server with a semi-synchronous replica", start: startPair("mysql", servers.MySQLPair, true), faults: processes + " break failover", untold: true},
	{name: "mysql-lag", about: "rows of a server with an asynchronous replica, which lags", start: startPair("mysql", servers.MySQLPair, false), faults: processes + " break failover", untold: true, allows: allow(forgotten)},
	{name: "redis-forward", about: "a server whose clock is set forward", start: startRedis(), faults: forward + network, allows: allow(stepped), settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redis-back", about: "a server that saves nothing, whose clock is set back", start: startRedis(), faults: back + network + server,
		allows: allow(keysStay), forgets: "store-restart", settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redlock-forward", about: "five servers, the clock of one of which is set forward", start: startRedlock(longTTL), faults: forward + network, allows: allow(stepped), settleTime: longTTL},
	{name: "redlock-back", about: "five servers, the clock of one of which is set back", start: startRedlock(longTTL), faults: back + network, allows: allow(keysStay), settleTime: longTTL},
	{name: "served-sqlite", about: "two replicas of a lock service, on a file", start: startServed(startSQLite, false), faults: served, brisk: true},
	{name: "served-tls", about: "the same, with TLS and HTTP/2", start: startServed(startSQLite, true), faults: served, brisk: true},
	{name: "served-redis", about: "two replicas of a lock service, on a Redis server", start: startServed(startRedis(), false), faults: served, brisk: true, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "served-pg", about: "two replicas of a lock service, on rows of PostgreSQL", start: startServed(startSQL("pg", servers.Postgres), false), faults: served, brisk: true},
	{name: "served-mysql", about: "two replicas of a lock service, on rows of MariaDB", start: startServed(startSQL("mysql", servers.MySQL), false), faults: served, brisk: true},
}

// setupNamed returns a set-up.
func setupNamed(t *testing.T, name string) setup {
	t.Helper()
	i := slices.IndexFunc(setups, func(s setup) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("there is no set-up %q", name)
	}
	return setups[i]
}

func allow(all ...history.Allowance) []history.Allowance { return all }

const (
	// unbounded is longer than all runs.
	unbounded = 1000 * time.Hour

	// renewalBound is the time within which a holder has certainly tried to renew its lease.
	renewalBound = 4 * time.Second

	// hintBound is the time within which a holder is told that its lease was broken if the store
	// reports it at once. The longest leases are renewed later.
	hintBound = 2 * time.Second
)

// givenAway allows what goes wrong if a store gives a lock away while it is held.
func givenAway(fault string, within time.Duration) history.Allowance {
	return history.Allowance{
		Fault: fault, Facts: []history.Fact{history.Exclusion, history.Early, history.Twice}, For: within,
		Why: "the lock is given away before its holder is told",
	}
}

// cutOff is for stores where a session ends with its connection.
func cutOff(fault string) history.Allowance { return givenAway(fault, 300*time.Millisecond) }

// sessionsEnd is for a server of which no session outlives it.
func sessionsEnd(fault string) history.Allowance {
	return history.Allowance{Fault: fault, Facts: []history.Fact{history.Early, history.Twice}, For: time.Second, Why: "nothing of sessions outlives the server"}
}

var (
	again = history.Allowance{Fault: history.KillWorker, Facts: []history.Fact{history.Twice}, For: time.Second,
		Why: "a host that asks just after the death of another one runs the tick again"}
	flushed   = givenAway("flush", renewalBound)
	forgotten = givenAway("failover", renewalBound) // a replica that lags has forgotten leases
	stepped   = givenAway(forward, renewalBound)    // leases end by the clock of the server, or of a node
	keysStay  = history.Allowance{
		Fault: back, Facts: []history.Fact{history.Stuck, history.Leftover}, Names: []string{"minhold", "cron", "delay"},
		For: unbounded, Why: "keys end by the server's clock",
	}
)

// bound returns the time within which all workers make progress after the heal.
func (s setup) bound() time.Duration { return longTTL + 5*time.Second + s.settleTime }

// rules returns the rules for a run of the set-up on a store with this Info.
func (s setup) rules(info driver.Info) history.Rules {
	rules, told := history.Rules{Bound: s.bound(), Forgets: s.forgets, Lease: longTTL}, renewalBound
	if info.TellsLoss {
		rules.Hint, told = hintBound, hintBound
	}
	rules.Allowed = append(slices.Clone(s.allows), givenAway("break", told))
	return rules
}

// leftoverBound returns for how long the store may show a holder or a waiter after
// all processes have ended.
func (s setup) leftoverBound() time.Duration { return max(s.bound(), s.deadWaiterTime+5*time.Second) }

// has reports whether the set-up has a fault.
func (s setup) has(fault string) bool { return slices.Contains(strings.Fields(s.faults), fault) }
