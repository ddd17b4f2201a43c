// Package zklock keeps locks in a ZooKeeper ensemble, 3.5 or later, over go-zookeeper. It
// does not use that library's lock, but a recipe of its own.
//
//	d, err := zklock.New([]string{"zk1:2181", "zk2:2181", "zk3:2181"})
//	...
//	locker, err := snib.New(d)
//
// On the same path, three foreign recipes exclude our locks and are excluded by them: Curator's
// InterProcessMutex, go-zookeeper's Lock and, with the option [CuratorReadWrite], Curator's
// InterProcessReadWriteLock. The other options are [Root], [Timeout], [DialTimeout], [Digest],
// [ACL], [TLS], [KeepSuspended] and [LiteralNames].
//
// All locks of a driver end with its session: with [Driver.Close] (see there), with its connection
// unless [KeepSuspended] is set, and [Timeout] after the process has died. For data in the
// ensemble, [Driver.IsOwner] is better than a fencing token.
//
// The page docs/backends/zklock.md has the paths and nodes, who waits for what, and what happens in
// failures.
package zklock
