// Package leader elects one of several processes. Of all processes that campaign
// for a name, one leads at a time.
//
//	err := leader.Run(ctx, locker, "reconciler", func(ctx context.Context, lock *snib.Lock) error {
//		return reconcile(ctx, lock.Token()) // runs here as long as this process leads, and nowhere else
//	})
//
// The leader is the process that holds a lock, so an election is as reliable as the store of the
// lock: see [snib.Locker.Info].
//
// # What an election does not promise
//
// An election does not promise that a former leader has stopped. Its context ends before the
// store can give the leadership to another process. But a function that ignores its context goes
// on, and so does a request that is already on its way. If an action must not be done twice,
// refuse it where it is done: send [snib.Lock.Token] with each request, which is greater for each
// later leader. Package fence has the checks.
//
// An election does not promise that there is a leader. When the leader dies, nobody leads until
// its lease has lapsed, which takes at most the Locker's [snib.TTL].
//
// # Who leads
//
// The holder in [snib.Locker.Status] is the leader, for people and for followers that want to
// forward requests; never base a decision on it. One that has died remains until its lease has
// lapsed. To make the leader reachable, candidates set [snib.Label] to their address.
package leader
