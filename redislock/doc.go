// Package redislock keeps locks in Redis 6.2 or later, or Valkey: in a single server, behind
// Sentinel, or in a Cluster.
//
//	d, err := redislock.Open(ctx, rueidis.ClientOption{InitAddress: []string{"localhost:6379"}})
//
// [New] takes the user's own rueidis client, and package redislock/goredis a go-redis client.
//
// A lock's own key is its name, and a plain string for an exclusive hold. So snib and clients that
// lock with SET key value NX PX (redsync, bsm/redislock, redis-py, node-redlock, ShedLock) exclude
// one another. A key of another type, or a lock of another kind, is a [driver.ErrKind].
//
// Leases end by the server's clock, which must not jump forward. Redis replicates after it has
// answered, so a promoted replica may not know of a lock. Therefore a server that restarted or was
// promoted grants nothing for a while, 30 s by default: see [FailoverGrace] and [GraceFloor].
//
// docs/backends/redislock.md describes keys, waiting, fencing, failover and the rights of users.
package redislock
