// Package mysqllock keeps locks in MariaDB 10.3 or later: as lease rows ([New]), or for as long as
// a transaction of the caller ([Tx], [Row]).
//
//	conf, err := mysql.ParseDSN(dsn)
//	...
//	d, err := mysqllock.New(conf)
//	...
//	locker, err := snib.New(d)
//
// A replica that is promoted knows only what was replicated to it. With asynchronous replication a
// lease may be granted twice. In a Galera cluster let all clients write to one node.
//
// The file docs/backends/mysqllock.md says what is promised, and describes the table, its rights,
// failover and all options.
package mysqllock
