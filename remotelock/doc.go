// Package remotelock keeps locks in a lock service, "snib serve", which keeps them in a store of
// its own. Use it where programs can't reach the store, or must not: they need only HTTP.
//
// # Keys
//
// A lock has its unchanged name in the service. The page of the backend behind the service says
// what becomes of it there.
//
// # Waiting
//
// A request that waits stays open at the service until it is granted, for up to 10 seconds, and is
// then sent again. The service keeps its place in the queue meanwhile. The order of arrival is kept
// among the clients of one replica of the service, and not over several.
//
// Over TLS, requests that wait share connections if the server speaks HTTP/2. Renewals and all
// other requests have connections of their own, so none of them waits behind a request that waits.
//
// # Liveness
//
// Each lease ends by itself after its TTL in the store, whatever becomes of the service. If a
// replica of the service dies, or shuts down, the driver goes on with another one of
// [Config.Servers]: holds last, and waiters lose only their places.
//
// # Fencing
//
// Tokens are those of the store behind the service.
//
// # Failover
//
// Replicas of the service keep nothing that a failover could lose. The store behind it may: see its
// page.
//
// # Options
//
// [Config] has the addresses of the replicas, and how to speak to them.
package remotelock
