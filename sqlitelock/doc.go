// Package sqlitelock keeps locks in an SQLite file that the processes of one host share. It needs no server, and Linux.
//
//	d, err := sqlitelock.Open("/var/lib/app/locks.db")
//
// # Keys
//
// A name is stored as it is and compared byte by byte: case and spaces count. A lock that is free has no row, so the
// file does not grow with the names that were ever used. Exclusive and shared leases of a name are one kind,
// semaphores are another: a request of the other kind, or for another number of slots, is a [driver.ErrKind] while
// anybody holds the name or waits for it. The tables are described in docs/backends/sqlitelock.md.
//
// # Waiting
//
// Waiters queue in the file, over all processes, and are always served in the order of arrival; readers that follow one
// another are let in together. Each waits for the one before it, and the first for the holders, in the kernel: it wakes
// about a millisecond after the lock was released, and waiting costs next to no processor time.
//
// A waiter whose turn has come and that does not take the lock, because it is stopped, is passed: those behind it look
// every second for each waiter before them, and pass it one second after it was found so. It keeps its place.
//
// The first in the queue also looks once a second, because nothing in the kernel tells it that a lease was broken, or
// that a detached lease was released, by a process other than the one that took it.
//
// For each foreign lease or waiter that a driver waits for, one goroutine, and its thread, blocks in the kernel. It
// can't be called back: when the wait is cancelled it stays until that lease or waiter is gone. There is one for each
// at most, 32 for a semaphore or the readers of a lock, and none for those of the same driver.
//
// # Liveness
//
// A lease ends at its TTL unless renewed, by CLOCK_BOOTTIME, which nobody can set and which counts sleep. A lease of an
// earlier boot is over. If its process dies, or closes the driver, it ends at once: beside the file there is another,
// ending in .live, in which each lease and each waiter keeps a byte of its own locked, and the kernel unlocks it.
//
// With Inherit, Grant.File keeps that byte locked. Once the process that took the lease is dead, those that inherited
// the file keep the lease, also past its TTL, until the last of them has closed it or is gone. As long as the process
// lives, stopped as it may be, the TTL ends the lease. Release ends it whoever has the file.
//
// A detached lease has no process: its TTL, Release or Break ends it. It goes before Inherit, and has no file. What
// MinHold keeps after a release outlives the process too.
//
// A process that is stopped in the middle of a transaction, which takes less than a millisecond,
// stops all others that use the file until it goes on or is killed. Their calls return soon after
// their contexts are done. An Acquire that gets no answer for 4.5 seconds fails with
// [driver.ErrUnavailable], and names that process if it can be seen; one that has its place in the
// queue keeps it for a minute.
//
// A holder whose lease is broken by force learns of it when it renews or releases the lease, or
// hands it over in its process: no lock of the kernel can wake it.
//
// # Fencing
//
// Tokens come from one counter in the file, increased in the transaction that grants: they increase over all names,
// for as long as the file exists, and follow the wall clock in microseconds should it be lost. A grant is on the disk
// before it is answered ([driver.FencingDurable]); releases and renewals need not be, because no lease survives a
// power cut. A lease may have a block of tokens, which goroutines of one process use up by handing it over among themselves.
// Grant.Wanted is nil, so after 5 ms or 128 holds the lock goes back to the file in any case, and to who waits there.
//
// # Failover
//
// There is none: if the disk fails, no lock can be taken, and holders lose theirs at the end of their TTL. Network
// file systems are refused. When the file or the one beside it is replaced or deleted under a driver, its calls fail.
// Containers may share the file if they share the kernel; if they show boot ids of their own (LXC, systemd-nspawn),
// only one of them can use it at a time.
//
// # Options
//
// [Fencing] gives up the durability of tokens for speed. [Mode] lets other users use a database
// that is created.
package sqlitelock
