// Package leader elects one of several processes: of all that campaign for a name, one leads at a time.
//
//	err := leader.Run(ctx, locker, "reconciler", func(ctx context.Context, lock *snib.Lock) error {
//		return reconcile(ctx, lock.Token()) // runs here as long as this process leads, and nowhere else
//	})
//
// A leader is who holds a lock, so an election is as good as the lock's store: see [snib.Locker.Info].
//
// # What an election does not promise
//
// That a former leader has stopped. Its context ends before the store can give the leadership to another one, but a function that
// does not look at its context goes on, and so does a request that is on its way. What must not be done by two has to be
// refused where it is done: send [snib.Lock.Token] with it, which is greater for each later leader. Package fence has the checks.
//
// That there is a leader: when one dies, nobody leads until its lease has lapsed, after the Locker's [snib.TTL] at most.
//
// # Who leads
//
// [Current] asks the store, for people and for followers that want to pass requests on. A candidate that sets [snib.Label] to its
// address is found by it.
package leader
