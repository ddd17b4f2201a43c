// Package pglock keeps locks in PostgreSQL 12 or later, in three ways.
//
//	d, err := pglock.New(pool)          // leases: rows of a table, through any pooler
//	d, err := pglock.NewSession(pool)   // advisory locks of PostgreSQL 14 or later, on one connection
//	err := pglock.Tx(ctx, tx, "orders") // for as long as a transaction, with the data in the same database
//
// Use rows unless you have a reason for one of the others. Use sessions for locks that must be
// free at once when the process dies, or that other programs take as advisory locks, too. A lock
// in a transaction can't be lost while the data is written, because both end with the transaction.
// If your data has a row for what you lock, [Row] locks that row. The transaction is one of pgx,
// or by [SQLTx] one of database/sql.
//
// # Keys
//
// A lock is a row of one table, under its unchanged name. Names are compared byte by byte. The
// driver creates the table when it first needs it, or you create it with the statements of
// [Schema]. For sessions and transactions a name is mapped to the number of an advisory lock, see
// [NameKey] and [Keys]. The file docs/backends/pglock.md describes the row and the keys.
//
// # Waiting
//
// Waiters of all processes queue in the row, and are always served in the order of arrival.
// Consecutive readers get the lock together. A release notifies the process of the next waiter
// (LISTEN, NOTIFY). Each process listens on one connection beside the pool, which it keeps while
// a caller waits or holds, and for 5 seconds after that. A process also sends one statement a
// second for all its waiters, which keeps them in the queue, and one when a lease ends that a
// waiter waits for. So a lost notification delays a waiter by up to a second. If the process of a
// waiter dies, the waiter is skipped after 3 seconds.
//
// Nobody can listen through a pooler in transaction mode. The option [Listen] names a way past
// it. Without that option, a process polls every 125 ms with one statement for all its waiters,
// and a holder learns from its next renewal that Break has ended its hold.
//
// # Liveness
//
// A lease ends after its TTL unless it is renewed. Each statement that decides whether a lease has
// ended reads the server's clock. If that clock is set back, the lease ends at the latest one TTL
// after the next request for the lock. Break tells the holder of the lease at once. A session ends
// with its connection. If the connection falls silent, the server ends the session after
// [Timeout], and its holders are told when a tenth of that time is left.
//
// # Fencing
//
// The token is one more than the last one of the row, or the server's clock in microseconds if
// that is greater. One statement writes the grant and its token, and the server answers it when
// they are on disk ([driver.FencingDurable]), whatever synchronous_commit is set to. Rows of
// unused locks are pruned, which never makes a token go back.
//
// The token of a session's lock is the server's clock ([driver.FencingClock]), which nobody stores.
//
// # Failover
//
// After a crash, the server still knows all grants and renewals. It may have forgotten the releases
// of the last 0.6 seconds, of locks that nobody waited for. Those locks are free at the end of
// their TTL. A standby that is promoted does not know what had not been replicated to it. Make the
// replication synchronous: otherwise only the clocks keep tokens in order, and two callers may
// hold a lock at once for up to a TTL. While the server can't be reached, waiters retry for up to
// one minute. While it has no connection left, they retry for as long as their context allows.
//
// # Options
//
// [Table] names the table, and [Listen] the way past a pooler. Sessions also have [Timeout] and
// [Keys]. [Tx] has options of its own, the type [TxOption].
package pglock
