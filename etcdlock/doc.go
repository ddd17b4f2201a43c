// Package etcdlock keeps locks in etcd 3.4 or later, through a client of
// go.etcd.io/etcd/client/v3.
//
//	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
//	...
//	d, err := etcdlock.New(client)
//	...
//	locker, err := snib.New(d)
//
// On the same name, its locks and those of package concurrency of etcd's client exclude one
// another. "etcdctl lock", the server's lock service and jetcd use that package's keys, too.
//
// All locks of a driver end with its session: with [Driver.Close] (see there), and [Timeout] after
// the process has died or was cut off. For data in etcd itself, [Driver.IsOwner] is better than a
// fencing token.
//
// The page docs/backends/etcdlock.md has the format of the keys, who waits for what, and what
// happens in failures.
package etcdlock
