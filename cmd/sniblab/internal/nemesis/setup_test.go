//go:build linux

package nemesis

import (
	"time"
)

// A setup is a store in a certain configuration, with its promises under each fault.
type setup struct {
	name  string
	about string
	start func(*world) // starts servers, sets the world's stores, and adds faults
	rows  []row

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

// setups are all set-ups, in the order of the tables.
var setups = []setup{
	{name: "sqlite", about: "a file", start: startSQLite, rows: sqliteRows},
	{name: "redis", about: "a server that saves nothing", start: startRedis(), rows: redisRows, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redis-aof", about: "a server with appendfsync always", start: startRedis(always...), rows: redisAOFRows, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "sentinel", about: "a master and a replica with min-replicas-to-write 1, and three Sentinels", start: startSentinel(minReplicas...), rows: sentinelRows, settleTime: sentinelGrace, deadWaiterTime: redisQueue},
	{name: "cluster", about: "three masters with a replica each", start: startCluster, rows: clusterRows, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redlock", about: "five servers that save nothing", start: startRedlock(), rows: redlockRows, settleTime: longTTL},
	{name: "redlock-aof", about: "five servers with appendfsync always", start: startRedlock(always...), rows: redlockRows, settleTime: longTTL},
	{name: "pg", about: "rows of a server", start: startPG("pg"), rows: pgRows},
	{name: "pgsession", about: "advisory locks of a server", start: startPG("pgsession"), rows: pgSessionRows},
	{name: "mysql", about: "rows of a server", start: startMySQL, rows: mysqlRows},
	{name: "zk", about: "an ensemble of three", start: startZK("zk"), rows: zkRows},
	{name: "zkkeep", about: "an ensemble of three, and KeepSuspended", start: startZK("zkkeep"), rows: zkRows},
	{name: "etcd", about: "a cluster of three", start: startEtcd, rows: etcdRows},
	{name: "pg-promote", about: "rows of a server with a synchronous standby", start: startPromotePG(false), rows: promoteRows},
	{name: "pg-lag", about: "rows of a server with an asynchronous standby, which lags", start: startPromotePG(true), rows: lagRows},
	{name: "mysql-promote", about: "rows of a server with a semi-synchronous replica", start: startPromoteMySQL(false), rows: mysqlPromoteRows},
	{name: "mysql-lag", about: "rows of a server with an asynchronous replica, which lags", start: startPromoteMySQL(true), rows: mysqlLagRows},
	{name: "redis-forward", about: "a server whose clock is set forward", start: startRedisClock(forward), rows: forwardRows, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redis-back", about: "a server that saves nothing, whose clock is set back", start: startRedisClock(back), rows: redisBackRows, settleTime: longTTL, deadWaiterTime: redisQueue},
	{name: "redlock-forward", about: "five servers, the clock of one of which is set forward", start: startRedlockClock(forward), rows: redlockForwardRows, settleTime: longTTL},
	{name: "redlock-back", about: "five servers, the clock of one of which is set back", start: startRedlockClock(back), rows: backRows, settleTime: longTTL},
	{name: "pg-forward", about: "rows of a server whose clock is set forward", start: startPGClock(forward), rows: forwardRows},
	{name: "pg-back", about: "rows of a server whose clock is set back", start: startPGClock(back), rows: sqlBackRows},
	{name: "mysql-forward", about: "rows of a server whose clock is set forward", start: startMySQLClock(forward), rows: forwardRows},
	{name: "mysql-back", about: "rows of a server whose clock is set back", start: startMySQLClock(back), rows: sqlBackRows},
}
