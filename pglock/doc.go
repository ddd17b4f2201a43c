// Package pglock keeps locks in PostgreSQL 12 or later, in three ways.
//
//	d := pglock.New(pool)               // leases: rows of a table, through any pooler
//	d := pglock.NewSession(pool)        // PostgreSQL's own advisory locks, on one connection
//	err := pglock.Tx(ctx, tx, "orders") // for as long as a transaction, with the data in the same database
//
// Rows are the choice where nothing speaks for another. Sessions are for locks that must end with the process at once, or
// that others take as advisory locks too. In a transaction nothing can be lost between lock and data; [Row] is for where a
// row of the data is all that has to be locked.
//
// # Keys
//
// A lock is a row of one table, under its name as it is, compared byte by byte. The table is made when it is first needed,
// or by the statements of [Schema]. For sessions and transactions a name becomes the number of an advisory lock, see
// [NameKey] and [Keys]. The row and the keys are described in docs/backends/pglock.md.
//
// # Waiting
//
// Waiters queue in the row, over all processes, and are always served in the order of arrival; readers that follow one
// another are let in together. A release notifies the process whose waiter is next (LISTEN, NOTIFY), on one connection
// beside the pool, which is there only while somebody waits or holds and for 5 seconds after. Beside that a process sends one
// statement a second for all its waiters, which keeps them in the queue, and one when a lease that is waited for ends: a
// notification that was lost costs a second. A waiter whose process died is passed after 3 seconds.
//
// Behind a pooler in transaction mode nobody can listen. The option [Listen] names a way past it; without one, a process
// looks every 125 ms, with one statement for all its waiters, and a holder learns of a Break from its next renewal.
//
// # Liveness
//
// A lease ends at its TTL unless renewed, by the server's clock, read in the statement that decides; if that is set back, a
// TTL after the next one asks for the lock at the latest. Who breaks a lease has its holder told at once. A session ends with its
// connection; if that falls silent, the server ends it after [Timeout], and the holders are told a tenth of that before.
//
// # Fencing
//
// The token is one more than the row's last one, or the server's clock in microseconds if that is greater. It stands in
// the row with the grant, in one statement, which is answered when it is on the disk ([driver.FencingDurable]), whatever
// synchronous_commit is for others. Rows of locks that are not used any more are pruned, and no token goes back by that.
//
// # Failover
//
// A server that crashed has forgotten no grant and no renewal. It may have forgotten the releases of its last 0.6 seconds,
// for which nobody waits: those locks are free at the end of their TTL. A standby that is promoted has forgotten what had
// not reached it: let it be synchronous, or tokens are ordered by the clocks only, and two may hold for a TTL.
// Waiters go on waiting while the server is gone for up to a minute, and while it has no connection left for as long as they like.
//
// # Options
//
// [Table] names the table, [Listen] how to get past a pooler. Sessions have [Timeout], [Keys] and [SessionPooler].
package pglock
