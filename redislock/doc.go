// Package redislock keeps locks in Redis: in a single server, behind Sentinel, or in a Cluster.
//
//	d, err := redislock.Open(ctx, rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//
// [New] takes the user's own rueidis client, and package redislock/goredis a go-redis client.
// The oldest supported version is Redis 6.2.
//
// # Keys
//
// A lock's own key is its name, byte by byte. For an exclusive hold it is a plain string, set with
// PX, that says everything: the id, the token, and who the holder is. So snib and clients that
// lock with SET key value NX PX (redsync, bsm/redislock, redis-py, node-redlock, ShedLock)
// exclude one another. All other data is in the same slot, under keys that begin with "snib.":
// the holders of a shared lock or semaphore, the queue, and one hash for all locks of a server,
// or of each slot of a Cluster. When all locks have been released only this hash is left. A key
// of another type, or a lock of another kind, is a [driver.ErrKind]. The format is described in
// docs/backends/redislock.md.
//
// Ids that are not UTF-8 are rejected.
//
// # Waiting
//
// Waiters queue in Redis in the order of arrival, one for each process. Consecutive readers are
// let in together. The script that releases a lock also hands it over to the next process, for 3
// s, and sends it one message as a hint (sharded in a Cluster from Redis 7 on); that process then
// sends its request again, which extends the lease to its TTL. Cancelled waiters leave at once,
// and unreachable ones are passed over. Each waiter also has a timer, set to the end of the
// holder's lease. Foreign clients do not announce a release, so the head of the queue polls every
// 200 ms while one holds the lock. A process subscribes while it waits, and, for
// Request.OnWanted, while it holds something.
//
// Requests of one process for the same server, or slot, share a call if they come at the same
// time.
//
// # Liveness
//
// A lease ends after its TTL, by the server's wall clock, unless it is renewed. Renewals go in
// batches. They check the id, and never revive a lease that has ended. A detached lease is
// like any other. When a hold is broken, a message tells its holder, which checks it with the
// store.
//
// # Fencing
//
// Tokens follow [driver.NextToken], by the server's clock, and are stored in the call that
// grants: [driver.FencingClock]. Semaphores have a token for each slot.
//
// # Failover
//
// Redis replicates after it has answered, so a promoted replica may not know of a lock. With
// [FailoverGrace], which is on by default, a server whose run_id differs from that of the
// server that wrote last grants nothing for [GraceFloor], or for as long as the longest lease
// that it knows to live. A server that has lost its memory grants nothing until its age reaches
// the floor. During that time holds can be renewed and released. The same applies to a slot
// that has moved within a Cluster. A master behind Sentinel that writes without replicas is
// rejected.
//
// Acquisitions are retried for a minute on LOADING, READONLY, MASTERDOWN, CLUSTERDOWN,
// TRYAGAIN, NOREPLICAS and lost connections. Calls whose answer was lost are repeated: the
// scripts tolerate that.
//
// # Options
//
// [GraceFloor] and [MaxTTL] bound how long nothing is granted after a failover. Turning
// [FailoverGrace] off trades this protection for speed. [DurableAOF] makes a single server
// remember all leases and tokens. [AllowSplitBrain] accepts Sentinels that can't prevent two
// masters. [YieldToForeign] keeps clients of other libraries from starving behind the queue.
// [Prefix] is for tenants of one server.
package redislock
