// Package mysqllock keeps locks in MySQL and MariaDB: as lease rows ([New]), in a session's GET_LOCK ([NewSession]), or for as
// long as a transaction of the caller's ([Tx]).
//
//	db, err := sql.Open("mysql", dsn)
//	...
//	locker, err := snib.New(mysqllock.New(db))
//
// # Keys
//
// A lease is the row of its name, byte by byte, in the table snib_locks: case and spaces count, whatever the collation of the
// database. The row stays when the lock is free, because the last token stands in it; rows that were not used for an hour can
// be forgotten without a token going back, see [Driver.Prune]. A session locks the name that [NameKey] gives it, which is
// mostly the same one. docs/backends/mysqllock.md has the wire format.
//
// # Waiting
//
// Waiters stand in the row in the order of their arrival. Who releases a lock writes into it which process is next. A process
// that waits has the server look whether it is called, on one connection for all its waiters, in statements of about a
// second in which the server looks every 0.25 to 10 ms, at one entry of an index. So a hand-over takes milliseconds, and waiting
// about three statements a second. Once a second a process looks itself, for what no call tells of.
//
// However many goroutines call it, a driver uses a bounded number of connections, see
// [Connections].
//
// # Liveness
//
// Leases end by the server's clock (UTC), which is read in the statements, as of their beginning.
// No statement leaves a transaction open. A waiter counts while its process says so once a
// second; one that died is passed after three seconds. A session ends with its connection, and
// when it has been silent for [Timeout]. When the end of the connection has reached this host,
// the holders are told within 10 ms.
//
// # Fencing
//
// Tokens are durable: each is the greater of the last one plus one and the server's clock in microseconds, and is written in the
// statement that grants. With innodb_flush_log_at_trx_commit=1, the default, a crash takes none of them back.
//
// # Failover
//
// A replica that is promoted knows what was replicated to it. With asynchronous replication a lease may be given twice, and
// tokens then go on by the clock. In a Galera cluster let all clients write to one node.
//
// # Options
//
// [Table], [Connections], and for sessions [Timeout] and [Keys].
package mysqllock
