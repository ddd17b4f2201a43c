// Package mysqllock keeps locks in MariaDB: as lease rows ([New]), or for as long as a transaction
// of the caller ([Tx]).
//
//	db, err := sql.Open("mysql", dsn)
//	...
//	d, err := mysqllock.New(db)
//	...
//	locker, err := snib.New(d)
//
// # Keys
//
// A lease is a row of the table snib_locks, under the name of the lock. Names are compared byte
// by byte: case and spaces count, whatever the collation of the database. The row stays when the
// lock is free, because it stores the last token. Rows that were not used for an hour can be
// deleted without a token going back, see [Driver.Prune]. The file docs/backends/mysqllock.md
// describes the wire format.
//
// # Waiting
//
// Waiters queue in the row, in the order of their arrival. A release signals, by a column of the
// row, the process of the next waiter. A waiting process has the server watch for such a signal,
// on one connection for all its waiters: each statement takes about a second, in which the server
// checks one entry of an index every 0.25 to 10 ms. So a hand-over takes milliseconds, and
// waiting takes about four statements a second. Once a second a process also polls the rows, for
// changes without a signal.
//
// # Liveness
//
// Leases end by the server's clock (UTC), which each statement reads as of its beginning. No
// statement leaves a transaction open. A process sends a heartbeat once a second, and its waiters
// count while it does. If it dies, its waiters are skipped after three seconds.
//
// # Fencing
//
// Tokens are durable. Each is one more than the last one, or the server's clock in microseconds
// if that is greater, and is written by the statement that grants. With
// innodb_flush_log_at_trx_commit=1, the default, a crash takes none of them back.
//
// # Failover
//
// A server that has set read_only grants nothing, and its connections are closed, so that the next
// request reaches the new primary. A replica that is promoted knows only what was replicated to it.
// With asynchronous replication a lease may be granted twice, and the clock then keeps tokens in
// order. In a Galera cluster let all clients write to one node.
//
// # Options
//
// [Table].
package mysqllock
