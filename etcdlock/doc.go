// Package etcdlock keeps locks in etcd 3.4 or later, through a client of
// go.etcd.io/etcd/client/v3.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	d, err := etcdlock.New(client)
//
// On the same name, its locks and those of package concurrency of etcd's client exclude one
// another. "etcdctl lock", the server's lock service and jetcd use that package's keys, too.
//
// # Keys
//
// A request is a key under the lock's name and a slash. The key is unique to the attempt and
// attached to the etcd lease of its process. The key with the smallest create revision under
// the name holds the lock. docs/backends/etcdlock.md describes the format.
//
// # Waiting
//
// The keys are a queue in the order of their creation, so waiters are always served in the
// order of arrival, including those of foreign clients. Adjacent readers are admitted together.
// A process watches a name once, however many of its callers wait for it, and for 5 seconds
// after the last. The watch also tells a holder
// that has reserved tokens, to hand the lock over within the process, when another process
// waits. A release wakes the next waiter, and no other. If a watch has reported nothing for a
// while, the driver compares it with what etcd has, so a watch that hangs costs seconds and
// does not block for ever.
//
// # Liveness
//
// A process has one etcd lease for all its locks, the session, which it keeps alive. The
// session ends with [Driver.Close]. If the process dies, is stopped or is cut off, the session
// ends after [Timeout]. Holders learn of its end by their own clock, a hundredth of the timeout
// before etcd can give their locks away. The timeout counts from the moment when the last
// keep-alive that etcd has answered was sent.
//
// # Fencing
//
// The token is the create revision of the key, followed by 16 bits. The revision is a position
// in the log on which a majority of the members agrees ([driver.FencingDurable]). The 16 bits
// are the index in the block of tokens that the hold has reserved: see [Revision]. For data in
// etcd itself, [Driver.IsOwner] is better than a token.
//
// # Failover
//
// A member that dies or hangs delays its clients for seconds, and costs nobody a lock: a new
// leader restarts the time of all leases. Without a majority nothing is granted, and holds end
// with their session. A cluster that was restored from a snapshot issues tokens again, unless
// it was restored with --bump-revision.
//
// # Options
//
// [Timeout] is how long a session outlives its process.
package etcdlock
