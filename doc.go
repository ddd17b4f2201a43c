// Package snib is distributed locking: several processes, on one machine or many, share something that only one of them
// may change at a time.
//
// A [Locker] takes locks in a store through a driver: memlock (this process), sqlitelock (this machine), or one of those
// for servers: redislock, redlock, pglock, mysqllock, zklock and etcdlock. The smallest program:
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
// [Locker.Do] runs a function under a lock. [Locker.Acquire] and [Locker.TryAcquire] return a [Lock], which is one hold
// and has to be released: "defer lock.Release()". [Locker.AcquireAll] takes several names without deadlock.
//
// A hold lasts until Release, however long that is. Its lease in the store is renewed every third of its [TTL]; the TTL
// is only how long the lock outlives a holder that has died.
//
// # Loss
//
// A hold can end before Release: the store is out of reach, the process was stopped or the machine slept for longer than
// the TTL, or somebody broke the lock. Then [Lock.Context] ends with a cause that matches [ErrLost], and [Lock.Lost] is
// closed: by the holder's own clock, before the store can give the lock to anybody else, also when the store hangs. Give
// Do's context to everything that is done under the lock.
//
// # What a lock does not promise
//
// No lock of this kind can stop a process that was paused between its last look at the context and its write: while it
// stood still the lease ended, somebody else took the lock, and now the old write arrives. This is true of every store
// and every library. So ask which of the two you have:
//
//   - A lock for efficiency: doing the work twice costs money or time, and nothing else. Do and its context are enough.
//   - A lock for correctness: two writers corrupt the data. Then the resource has to take part. Give it [Lock.Token] with
//     every request, and have it refuse a token lower than the greatest that it has seen.
//
// How far a backend's tokens can be relied on is in [Locker.Info]; [RequireFencing] refuses one that is too weak.
//
// # Waiting
//
// Waits end with the context, or after [MaxWait] with [ErrHeld]. Goroutines of one process that want the same name queue
// in the Locker, first in first out, and one of them at a time asks the store. Where the driver reserves tokens, a
// released hold goes straight to the next of them, with its own token and without a request to the store, unless the
// store confirmed the lease longer than 10 ms ago: then the lease is renewed first.
//
// While the store is unavailable an acquisition that may wait tries again for a minute, and then answers
// [ErrUnavailable]. That is never [ErrHeld], which means that somebody holds the lock.
//
// # Errors
//
// All errors are an [*Error] with operation, name and backend, and match one of the sentinels of this package, the
// cause of the context, or the backend's own.
package snib
