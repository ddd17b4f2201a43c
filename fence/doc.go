// Package fence checks fencing tokens at the resource that a lock protects.
//
// A lock can't stop a holder that was paused, or a request that was delayed, from writing late:
// its lease ends, another holder gets the lock and writes, and then the first one goes on as if
// nothing had happened. Only the resource can refuse that. It remembers the [Mark] of the last
// hold that it let in, and lets in another hold only if its token is greater:
//
//	lock, err := locker.Acquire(ctx, "account/42")
//	…
//	h, err := guard.Open(ctx, lock) // from here on the resource refuses all earlier holds
//	…
//	err = h.Do(ctx, func(ctx context.Context) error { … }) // read, and write
//
// # Claim before you read
//
// Open claims the resource: it raises the mark, before the first read. That matters to a holder
// that reads, modifies and writes. If only writes were checked, an older hold could still write
// between the read and the write of the newer one. Both writes would be accepted, and one of
// them lost. The method Do of the guards, used without Open, is that weaker form. It is enough
// for writes that do not depend on what was read.
//
// If all holders claim, a resource always accepts a sequence of whole holds, one after the
// other, even if two holders were given the lock at once. If the tokens are in order, the
// newest hold is the one that goes on.
//
// # Which guard
//
//   - [SQL]: rows of PostgreSQL, MySQL, MariaDB or SQLite, over database/sql. [Columns] is for
//     statements of your own, in place of a version column (optimistic lock). If the lock and
//     the data are in the same database, the transaction locks of pglock and mysqllock need no
//     token at all.
//   - [Server] and [Transport]: a resource behind HTTP.
//   - [File]: a file on one machine.
//   - [Memory]: a resource in this process.
//   - A [Mark] and the number of the request, as the key: receivers that know idempotency keys,
//     such as queues, mail and payments. Before the request is sent, store the key where the next
//     holder reads it, which then sends the request again under this key.
//
// # Who is to be trusted
//
// A mark is no secret, and proves nothing: it orders holds that are honest. Anyone who may
// reach a guard may claim what it guards with a token of their own choice, and so shut out
// everyone who comes with a lesser one. So control access to the resource, and to the place
// where the marks are kept, as you would without a guard: by authentication before a [Server],
// the rights of a table for [SQL], the mode of the folder for [File].
//
// A guard is as strong as the tokens: see [driver.Fencing], and snib.RequireFencing.
package fence
