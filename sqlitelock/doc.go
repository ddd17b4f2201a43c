// Package sqlitelock keeps locks in an SQLite file that the processes of one host
// share. It needs no server, and runs on Linux, macOS and Windows. This page describes Linux;
// docs/backends/sqlitelock.md lists the differences on the other systems.
//
//	d, err := sqlitelock.Open(ctx, "/var/lib/app/locks.db")
//
// # Keys
//
// A name is stored unchanged and compared byte by byte: case and spaces count. A free lock has
// no row, so the file does not grow with the names that were ever used. Exclusive and shared
// leases of a name are one kind of lock, semaphores are another. While anybody holds the name
// or waits for it, a request of the other kind fails with
// [driver.ErrKind]. The tables are described in docs/backends/sqlitelock.md.
//
// # Waiting
//
// Waiters of all processes queue in the file and are always served in the order of arrival;
// consecutive readers are let in together. Each waiter waits in the kernel for the one before
// it, and the first one for the holders. It wakes about a millisecond after the lock was
// released, and waiting costs next to no processor time. A stopped waiter that reaches the head of
// the queue and does not take the lock is passed after a second or two, or six in a long queue, and
// keeps its place.
//
// A detached lease, and one that another process releases or breaks, unlocks no byte that its
// waiters watch. Its end wakes the waiters of the same process, and on Linux those of others
// (inotify). On the other systems, the head of the queue notices at its next check, once a second.
//
// For each lease or waiter of another driver that a driver waits for, one goroutine blocks in
// the kernel, together with its thread, until that lease or waiter is gone, also when the wait is
// cancelled. A request needs at most one such goroutine, or 32 for a semaphore or the readers of a
// lock. Leases and waiters of the same driver need none.
//
// # Liveness
//
// A lease ends at its TTL unless it is renewed, through any driver on the file: see [Driver.Lease].
// Times are those of CLOCK_BOOTTIME, which nobody can set and which counts sleep. A lease ends at
// once if its process dies or closes the driver: in a second file beside the database, whose name
// ends in .live, each lease and each waiter keeps a byte of its own locked, and the kernel unlocks
// it. A restart of the host ends it, too.
//
// [Driver.Inherit] returns a file that keeps that byte locked. After the process that took the
// lease has died, the processes that inherited the file keep the lease, also past its TTL, until
// the last of them has closed the file or is gone.
//
// A detached lease does not depend on a process: its TTL, Release or Break ends it. A lease that
// MinHold keeps after its release outlives the process too. Across a restart of the host, both last
// until their end by the wall clock, and at most for a TTL.
//
// A process that is stopped in the middle of a transaction, which takes less than a millisecond,
// blocks all others that use the file until it resumes or is killed. An Acquire that gets no answer
// for 4.5 seconds fails with [driver.ErrUnavailable], and names that process if it is visible; a
// request that is already in the queue keeps its place for a minute.
//
// A holder whose lease is broken by force learns of it when it renews or releases the lease, or
// hands it over within its process: no kernel lock can wake it.
//
// # Fencing
//
// Tokens come from one counter in the file, which the granting transaction increases. They
// increase over all names for as long as the file exists. If the file is lost, they follow the
// wall clock in microseconds. A grant is on the disk before Acquire returns
// ([driver.FencingDurable]); releases and renewals are, too, if the lease is detached. A lease
// may have a block of tokens, which goroutines of one process use up by handing the lease over
// among themselves. A holder is not told that another process waits (Request.OnWanted), so
// after 5 ms or 128 holds the lock goes back to the file in any case, and to the waiters there.
//
// # Failover
//
// There is none: if the disk fails, no lock can be acquired, and holders lose theirs at the end of
// their TTL. Network file systems are refused. Containers may share the file if they share the
// kernel; if they show boot ids of their own, only one of them can use it at a time. Mount its
// folder into them: a file that is mounted by itself (noticed since Linux 5.8) or has hard links is
// refused, because the files beside it are then others.
//
// # Options
//
// [Mode] lets other users use a database that Open creates.
package sqlitelock
