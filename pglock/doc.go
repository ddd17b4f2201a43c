// Package pglock keeps locks in PostgreSQL 12 or later, in three ways.
//
//	d, err := pglock.New(pool)             // leases: rows of a table, also through a pooler
//	d, err := pglock.NewSession(pool)      // advisory locks on one connection, from version 14 on
//	err := pglock.Tx(ctx, tx, "orders", 0) // for as long as a transaction of the same database
//
// Use rows unless you have a reason for one of the others. Use sessions for locks that must be
// free at once when the process dies, or that other programs take as advisory locks, too. A lock
// in a transaction can't be lost while the data is written, because both end with the transaction.
// If your data has a row for what you lock, [Row] locks that row. The transaction is one of pgx,
// or by [SQLTx] one of database/sql.
//
// A standby that is promoted does not know what had not been replicated to it. Make the replication
// synchronous: otherwise two callers may hold a lock at once for up to a TTL.
//
// The file docs/backends/pglock.md says what is promised in each of the three ways, and describes
// the table, its rights, failover and all options.
package pglock
