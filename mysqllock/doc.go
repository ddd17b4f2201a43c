// Package mysqllock keeps locks in MariaDB 10.3 or later: as lease rows ([New]), or for as long as
// a transaction of the caller ([Tx], [Row]).
//
//	db, err := sql.Open("mysql", dsn)
//	...
//	d, err := mysqllock.New(db)
//	...
//	locker, err := snib.New(d)
//
// The driver keeps one connection of db, so db must be allowed two (SetMaxOpenConns). A program
// that waits for a lock while it uses all others waits for itself.
//
// A replica that is promoted knows only what was replicated to it. With asynchronous replication a
// lease may be granted twice. In a Galera cluster let all clients write to one node.
//
// The file docs/backends/mysqllock.md says what is promised, and describes the table, its rights,
// failover and all options.
package mysqllock
