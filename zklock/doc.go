// Package zklock keeps locks in a ZooKeeper ensemble, 3.5 or later, over go-zookeeper. It
// does not use that library's lock, but a recipe of its own.
//
//	d, err := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	...
//	locker, err := snib.New(d)
//
// All locks of a driver belong to one session. It begins with the first call and ends with
// Close.
//
// # Keys
//
// A lock is a folder below the [Root]. Each holder and each waiter is an ephemeral
// sequential node in that folder. On the same path, three foreign recipes exclude our locks
// and are excluded by them: Curator's InterProcessMutex, go-zookeeper's Lock and, with the
// option [CuratorReadWrite], Curator's InterProcessReadWriteLock. docs/backends/zklock.md
// describes how names become paths, and what the nodes contain.
//
// # Waiting
//
// Waiters are served in the order of their nodes' numbers, over all processes. Adjacent
// readers are admitted together. Each waiter watches the one node that blocks it. A process
// watches a node once, however many of its callers wait for it. After a wait, a waiter
// takes the lock only if its own node still exists.
//
// # Liveness
//
// If a process dies, the ensemble ends its session after its [Timeout]. A holder may rely
// on 5/12 of the timeout, counted from the last request that the leader has answered, and
// on less after a pause. When the connection is lost, all holds are lost too, unless
// [KeepSuspended] is set: until a server confirms the session, nobody knows whether it
// still lives.
//
// # Fencing
//
// The token is made of the zxid of the transaction that created the node, which a majority has on
// disk ([driver.FencingDurable]), and of an index in a block of tokens: see [Zxid]. If a folder is
// removed and created again, tokens still increase, although the sequence numbers of the nodes
// restart.
//
// # Failover
//
// When the leader or another server dies, sessions continue and waiters keep their places.
// A minority serves nobody.
//
// # Options
//
// [Root], [Timeout], [DialTimeout], [Digest], [ACL], [TLS], [KeepSuspended],
// [CuratorReadWrite] and [LiteralNames].
package zklock
