// Package redislock keeps locks in Redis: in one server, behind Sentinel, or in a Cluster.
//
//	d, err := redislock.Open(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//
// [New] takes the user's own rueidis client, and package redislock/goredis one of go-redis. Redis 6.2 is the oldest that will do.
//
// # Keys
//
// The lock's own key is its name, byte by byte, and a plain string: the owner of an exclusive hold, with PX. So clients that lock
// with SET key value NX PX (redsync, bsm/redislock, redis-py, node-redlock, ShedLock) and snib exclude one another. All else stands
// beside it in the same slot, under names that begin with "snib.": what is known of the holders, the queue, and one hash for all
// locks of a server, or of each slot of a Cluster, which is all that is left when everything has been released. A key of another
// type, or a lock of another kind, is a [driver.ErrKind]. The format is described in docs/backends/redislock.md.
//
// Owners that begin with "snib:", or are not UTF-8, are refused.
//
// # Waiting
//
// Waiters queue in Redis, one for each process, in the order of arrival; readers that follow one another are let in together. Who
// releases hands the lock over in the same script, and hints at it to the next process, which asks, by one message (sharded in a Cluster from Redis 7 on).
// Waiters that were cancelled leave at once, and who can't be reached is passed over. Behind each wait there is a timer, at the end
// of the holder's lease. Foreign clients do not tell when they release: the first in the queue looks every 200 ms. A process
// subscribes while it waits, and when it holds something for longer than a moment, for the sake of Grant.Wanted.
//
// Requests of one process for the same server, or slot, that come at the same time share one call.
//
// # Liveness
//
// A lease ends at its TTL, by the server's wall clock, unless renewed. Renewals go in batches; the owner is checked, and what has
// ended stays ended. A detached lease is one like others. Who breaks a hold has its holder told, by a message that the holder checks.
//
// # Fencing
//
// Tokens follow [driver.NextToken], by the server's clock, and are stored in the call that grants: [driver.FencingClock]. Semaphores
// have a token for each slot.
//
// # Failover
//
// Redis replicates behind the holder's back: a replica that is promoted may not know of a lock. With [FailoverGrace], which is on by
// default, a server whose run_id is not the one that wrote last grants nothing for [GraceFloor], or for as long as the longest lease that
// it knows to live; neither does one that has lost its memory, until it is as old as the floor. What is held meanwhile can be renewed
// and released. A slot that has moved within a Cluster waits likewise. A master behind Sentinel that writes without replicas is refused.
//
// Acquisitions ride out LOADING, READONLY, MASTERDOWN, CLUSTERDOWN, TRYAGAIN, NOREPLICAS and lost connections for a minute. Calls whose
// answer was lost are asked again: the scripts bear it.
//
// # Options
//
// [GraceFloor] and [MaxTTL] bound for how long nothing is granted after a failover. [FailoverGrace] gives up what is said above for speed,
// and [AllowSplitBrain] accepts Sentinels that can't prevent two masters. [Single] and [Cluster] demand a topology.
package redislock
