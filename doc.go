// Package snib provides distributed locks. With a lock, several processes, on one machine or
// many, share something that only one of them may change at a time.
//
// A [Locker] acquires locks in a store through a driver: memlock (this process), sqlitelock (this
// machine), or one of those for servers: redislock, redlock, pglock, mysqllock, zklock, etcdlock
// and remotelock. The smallest program:
//
//	locker, err := snib.New(memlock.New())
//	if err != nil {
//		return err
//	}
//	defer locker.Close()
//	return locker.Do(ctx, "invoices/2026-11", func(ctx context.Context, lock *snib.Lock) error {
//		return ledger.Close(ctx, lock.Token())
//	})
//
// # Holding
//
// [Locker.Do] runs a function under a lock. [Locker.Acquire] and [Locker.TryAcquire] return a
// [Lock], which is one hold and must be released: "defer lock.Release()". [Locker.AcquireAll]
// acquires several locks without deadlock. A hold with [Detached] outlives its process, and
// [Locker.Adopt] takes it over in another one.
//
// A hold lasts until Release, however long that is. The Locker renews its lease in the store
// every third of its [TTL]. The TTL is only how long the lock outlives a holder that has died. With
// [NoRenewal], the hold ends with its TTL instead.
//
// # Loss
//
// A hold can end before Release: the store is out of reach, the process was stopped or the
// machine slept for longer than the TTL, or somebody broke the lock. Then [Lock.Context] ends
// with a cause that matches [ErrLost], and [Lock.Lost] is closed. When a lease runs out, that
// happens by the holder's own clock, before the store can give the lock to anybody else, even if
// the store hangs. Pass Do's context to everything that is done under the lock.
//
// # What a lock does not promise
//
// No lock of this kind can stop a process that was paused between its last check of the
// context and its write. During the pause the lease ended, somebody else acquired the
// lock, and now the old write arrives. This is true of every store and every library. So
// ask which of the two you need:
//
//   - A lock for efficiency: doing the work twice costs money or time, and nothing else.
//     Do and its context are enough.
//   - A lock for correctness: two writers corrupt the data. Then the resource has to take
//     part. Send it [Lock.Token] with every request, and have it refuse a token smaller than
//     the greatest that it has seen.
//
// [Locker.Info] says how far a backend's tokens can be relied on. [RequireFencing]
// refuses a backend that is too weak.
//
// # Waiting
//
// A wait ends with the context, or after [MaxWait] with [ErrHeld]. Goroutines of one process that
// want the same name queue in the Locker, first in first out, and only the one at the head asks the
// store. Where the driver reserves tokens, a released lock goes straight to the next goroutine,
// with a token of its own, if the store confirmed the lease within the last 10 ms. If the store has
// given the lock to another process within these 10 ms, the next goroutine believes in its hold
// until its next renewal, for a third of the TTL at most; a resource that checks tokens refuses it.
//
// While the store is unavailable, an acquisition that may wait retries for [RetryTimeout], and then
// returns [ErrUnavailable]. That never matches [ErrHeld], which means that somebody holds the lock.
// [HeldError.Info] says who.
//
// # Errors
//
// Each error is an [*Error] with operation, name and backend. It matches one of the sentinels of
// this package, the cause of the context, or the backend's own error. Of the errors of [Locker.Do],
// [ErrHeld] and [ErrUnavailable] mean that nothing was begun, [ErrUnreleased] that the work was
// done, and [ErrLost] that it may have been done beside another holder.
//
// docs/README.md is the index of a guide, with a program on each page.
package snib
