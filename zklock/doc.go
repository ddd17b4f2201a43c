// Package zklock keeps locks in a ZooKeeper ensemble, 3.5 or later, by a recipe of its own over go-zookeeper.
//
//	d := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	defer d.Close()
//	locker, err := snib.New(d)
//
// All locks of a driver hang on one session, which begins with the first call and ends with Close.
//
// # Keys
//
// A lock is a folder below the [Root]; who holds it or waits is an ephemeral sequential node there. On the same path Curator's
// InterProcessMutex, go-zookeeper's Lock, and, with the option [CuratorReadWrite], Curator's InterProcessReadWriteLock exclude
// ours, and are excluded. How names become paths, and what stands in nodes, is described in docs/backends/zklock.md.
//
// # Waiting
//
// Waiters are served in the order of their nodes' numbers, over all processes; readers that follow one another are let in
// together. Each watches the one node that is in its way. A process watches a node once, however many of its callers wait for
// it. After a wait a waiter takes the lock only if its own node is still there.
//
// # Liveness
//
// The ensemble ends the session of a process that died after its [Timeout]. A holder may rely on 5/12 of that, from the last
// request that the leader has answered, and on less after a pause. When the connection is lost, so are the holds, unless
// [KeepSuspended] is set: nobody knows whether the session still lives until a server says so.
//
// # Fencing
//
// The token is the zxid of the transaction that made the node, which a majority has on disk ([driver.FencingDurable]). It goes on
// when a folder is removed and made anew, which the numbers of the nodes don't.
//
// # Failover
//
// When the leader or another server dies, sessions go on, and waiters keep their places. A minority serves nobody.
//
// # Options
//
// [Root], [Timeout], [DialTimeout], [Digest], [ACL], [TLS], [KeepSuspended] and [CuratorReadWrite].
package zklock
