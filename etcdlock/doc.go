// Package etcdlock keeps locks in etcd 3.4 or later, through a client of go.etcd.io/etcd/client/v3.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	d := etcdlock.New(client)
//
// On the same name it and package concurrency of etcd's client ("etcdctl lock", the server's lock service, jetcd) exclude one
// another.
//
// # Keys
//
// A request is a key under the lock's name and a slash, unique to the attempt, on the lease of its process. Who has the
// smallest create revision under the name holds the lock. The format is described in docs/backends/etcdlock.md.
//
// # Waiting
//
// Keys are a queue in the order of their creation, so waiters are always served in the order of arrival, strangers among them;
// readers that follow one another are let in together. A process watches a name once, however many wait for it in it, and
// for 5 seconds after; the watch is begun before the request is put. It also tells who has reserved tokens, to hand the lock over within
// the process, that another process waits. A release wakes the next waiter, and no other. A watch
// that has said nothing for a while is compared with what etcd has, so that one that hangs costs seconds and not for ever.
//
// # Liveness
//
// A process has one lease for all its locks, the session, which it keeps alive. The session ends with [Driver.Close], and
// after [Timeout] when the process dies, is stopped or cut off. The holders are told of its end by their own clock, a
// hundredth of it before etcd can give their locks away: counted from when the last keep-alive that etcd has answered was
// sent.
//
// # Fencing
//
// The token is the create revision of the key, a place in the log on which a majority of the members agrees ([driver.FencingDurable]), and behind
// it, in 16 bits, the place in the block of tokens that the hold has reserved: see [Revision]. For data in etcd itself there is better
// than a token: [Driver.IsOwner].
//
// # Failover
//
// A member that dies or hangs costs those who talk to it seconds, and nobody a lock: a new leader begins the time of all leases
// anew. Without a majority nothing is granted, and holds end when their session does. A cluster that was restored from a
// snapshot gives out tokens anew, unless it was restored with --bump-revision.
//
// # Options
//
// [Timeout] is how long a session outlives its process.
package etcdlock
