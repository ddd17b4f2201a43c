// Package redlock keeps locks by a majority of N independent Redis servers: Redlock, with fencing tokens, and with a rule for servers
// that forget.
//
//	servers := []rueidis.ClientOption{
//		{InitAddress: []string{"a:6379"}}, {InitAddress: []string{"b:6379"}}, {InitAddress: []string{"c:6379"}},
//	}
//	d, err := redlock.Open(servers)
//
// N is odd, 3 to 15; fewer than half of the nodes may fail, hang or forget at a time. [Init] makes new servers a cluster; without it
// clients admit them when [MaxTTL] is over. [New] takes the user's own rueidis clients. Redis 6.2 is the oldest that will do.
//
// # Keys
//
// The lock's own key on each node is its name, and a plain string that no other attempt ever uses, with PX; so clients of the published
// algorithm over the same nodes (redsync, node-redlock) and snib exclude one another. What a node knows of itself, and the counters from
// which tokens come, stand in one hash, snib.redlock: lost together, or not at all. The format is described in docs/backends/redlock.md.
//
// # Waiting
//
// Nodes publish releases to those who wait. Who hears it of so many nodes that a majority is free tries at once, or, if others wait too,
// after a random delay in proportion to their number. Behind each wait there is a timer, at the moment when a majority of the leases that
// were seen will have ended. There is no order of arrival. If several fight and none gets a majority, each frees what it has and tries
// again at random; a request with NoWait does so a few times before it says that the lock is held.
//
// # Liveness
//
// A lease ends at its TTL, by the clock of each node, unless a majority extends it in time. While it is valid, a renewal also takes it
// again on nodes that were away or have forgotten it, unless somebody else has had it there since.
//
// Nodes publish that a lease was broken by force, and its holder then asks whether a majority still has it. So it is told at once, and nobody
// else can end a hold by a message.
//
// A node that hangs or is killed costs nothing but its vote: there is one goroutine and one connection for each node, on which orders
// follow each other, and nobody waits for one that is overdue ([NodeTimeout]). What frees locks stays in line behind what took them, also
// while the node hangs, so nothing is left there when it goes on.
//
// # Fencing
//
// Each node answers a grant with its counter, raised to at least its next number. The token is the number on which a majority agrees: mostly
// after one round trip, else after a second one, which raises those that are behind. Package internal/quorum has the argument. Tokens
// are in order as long as a majority keeps what it acknowledged ([driver.FencingDurable]), whatever clocks do. A lease has a
// block of up to 4096 tokens, so that the goroutines of a process can hand it over among themselves. Its holder is not told that
// another process waits; the lease therefore goes back after 128 holds or 5 ms.
//
// # Failover
//
// There is none: nodes are no replicas of each other. A node that restarted, with its memory or without, refuses by itself until a client has
// waited for MaxTTL and then read the counters of a majority; the agent of any driver does that. If a majority has forgotten, [OnMajorityLoss]
// decides, and [Recover] lets an operator decide.
//
// # Options
//
// [MaxTTL], [NodeTimeout] and [OnMajorityLoss].
package redlock
