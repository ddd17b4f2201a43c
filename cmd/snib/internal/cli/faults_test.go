package cli

// faults says, for people who choose a store, what happens to a lock under each kind of fault: a
// clause on one line, in lower case and without a full stop.
type faults struct {
	Pause     string // a holder stops for longer than its lease, and then goes on
	Crash     string // a holder's process or host dies
	Failover  string // the store restarts, or another server takes its place
	Partition string // a holder, or a part of the store, is cut off
	ClockJump string // a wall clock is set
}

// The faults that are the same on several backends.
const (
	leaseEnds   = "others get the lock at the end of the lease; the resource must refuse the holder's late writes by their token"
	freeAtEnd   = "the lock is free at the end of the lease"
	sessionEnds = "the session ends at its timeout, and others get the lock; the resource must refuse the holder's late writes by their token"
	serverClock = "if the server's clock is set forward, leases end early, and holds can overlap; the clocks of clients don't matter"
	oldPrimary  = "a holder that is cut off is told before its lease ends; a primary that does not know that it was replaced goes on granting"
)

// faultsOf are the faults of each backend, by the name in its Info.
var faultsOf = map[string]faults{
	"memory": {
		Pause:     "the whole process stops, and all contenders with it; a hold whose lease ended in the meantime is lost when it goes on",
		Crash:     "all contenders die with the holder",
		Failover:  "there is none: the store is the process",
		Partition: "there is none",
		ClockJump: "no effect: leases count by a clock that nobody sets",
	},
	"sqlite": {
		Pause:     leaseEnds,
		Crash:     "a dead process is noticed at once; leases of processes end when the host restarts",
		Failover:  "there is none: the file is on one host; after a power cut tokens continue from the last one on the disk",
		Partition: "there is none: network file systems are refused",
		ClockJump: "no effect: leases count by the boot clock",
	},
	"redis": {
		Pause:     leaseEnds,
		Crash:     freeAtEnd,
		Failover:  "nothing is granted until the leases that may be forgotten are over; a lease that is longer than the grace period and was not replicated can overlap",
		Partition: "a holder that is cut off is told before its lease ends; a master that is cut off goes on granting, unless min-replicas-to-write",
		ClockJump: serverClock,
	},
	"redlock": {
		Pause:     leaseEnds,
		Crash:     freeAtEnd,
		Failover:  "a server that restarted has no vote until it has waited for the longest TTL and has read its counters back from a majority",
		Partition: "a holder without a majority is told before its lease ends; clients with a majority go on",
		ClockJump: "if a server's clock is set forward, holds for which its vote decided can overlap; tokens stay in order",
	},
	"postgres": {
		Pause:     leaseEnds,
		Crash:     freeAtEnd,
		Failover:  "a standby that has all commits goes on with leases and tokens; a standby that lags has lost some, and holds can overlap",
		Partition: oldPrimary,
		ClockJump: serverClock,
	},
	"mysql": {
		Pause:     leaseEnds,
		Crash:     freeAtEnd,
		Failover:  "a replica that has all commits goes on with leases and tokens; a replica that lags has lost some, and holds can overlap",
		Partition: oldPrimary,
		ClockJump: "server's clock set forward: leases end early, and holds can overlap; set back: a dead holder keeps the lock until one TTL after " +
			"the next request for it; the clocks of clients don't matter",
	},
	"zookeeper": {
		Pause:     sessionEnds,
		Crash:     "the lock is free when the session ends, at its timeout",
		Failover:  "a new leader knows all sessions and locks; without a majority nothing is granted",
		Partition: "a holder that is cut off from the majority is told before its session ends; servers without a majority grant nothing, and the others go on",
		ClockJump: "no effect: servers count by a clock that nobody sets",
	},
	"etcd": {
		Pause:     sessionEnds,
		Crash:     "the lock is free when the session's lease ends",
		Failover:  "a new leader knows all locks and begins leases anew; without a majority nothing is granted",
		Partition: "a holder that is cut off from the majority is told before its session ends; servers without a majority grant nothing, and the others go on",
		ClockJump: "no effect: members count by a clock that nobody sets",
	},
}
