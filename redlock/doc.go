// Package redlock keeps locks on a majority of N independent Redis servers. It implements
// Redlock, extended with fencing tokens and with a rule for servers that lose their memory.
//
//	servers := []rueidis.ClientOption{
//		{InitAddress: []string{"a:6379"}}, {InitAddress: []string{"b:6379"}}, {InitAddress: []string{"c:6379"}},
//	}
//	d, err := redlock.Open(ctx, servers)
//
// N is odd, 3 to 15. Fewer than half of the nodes may fail, hang or forget at a time. The
// Init of [Admin] makes new servers a cluster; without it, clients admit new servers after
// [MaxTTL]. [New] takes the user's own rueidis clients. Redis 6.2 is the oldest supported version.
//
// # Keys
//
// On each node, the key of a lock is the lock's name. Its value is a plain string that no other
// attempt ever uses, set with PX. Clients of the published algorithm (redsync, node-redlock)
// and snib therefore exclude one another on the same nodes. A node keeps its own state, and the
// counters from which tokens come, in one hash, snib.redlock, so they are lost together or not
// at all. The format is described in docs/backends/redlock.md.
//
// # Waiting
//
// Nodes publish releases to the waiters. A waiter tries again as soon as so many nodes have
// published a release that a majority is free. If others wait too, it first pauses for a random
// time in proportion to their number. A timer backs up every wait: it fires when a majority of
// the leases that the waiter saw will have ended. There is no order of arrival. If several
// clients compete and none gets a majority, each of them frees what it has and tries again
// after a random pause. A request with NoWait does so up to 16 times; then its error matches
// [driver.ErrUnavailable].
//
// # Liveness
//
// A lease ends after its TTL, by the clock of each node, unless a majority extends it in time.
// While the lease is valid, a renewal also takes it again on nodes that were unreachable or
// have forgotten it, unless another client has held the lock there since.
//
// When a lease is broken by force, the nodes publish that. The message is only a hint: the
// holder asks the nodes whether a majority still has the lease. So the holder learns of the
// loss at once, and nobody can end a hold by a forged message.
//
// A node that hangs or is killed costs nothing but its vote. Each node has one goroutine and
// one connection, on which commands are sent in order, and nobody waits for a node that is
// overdue ([NodeTimeout]). A command that frees a lock stays queued behind the command that
// took it, also while the node hangs, so nothing is left there when the node continues.
//
// # Fencing
//
// Each node answers a grant with its counter, which it has raised by at least one. The token is
// the number on which a majority agrees: usually after one round trip, otherwise after a second
// one, which raises the counters that are behind. Package internal/quorum has the argument.
// Tokens stay in order as long as a majority keeps what it acknowledged
// ([driver.FencingDurable]), whatever the clocks do. A lease has a block of up to 4096 tokens,
// so that the goroutines of a process can hand it over locally. Its holder is not told that
// another process waits, so the process gives the lease back after 128 holds or 5 ms.
//
// # Failover
//
// There is none: the nodes are not replicas of each other. A node that restarted, with its
// memory or without, grants nothing until a client has waited for MaxTTL and has then read the
// counters of a majority. The agent of any driver does that. If a majority has lost its memory,
// counters go on from the present time, or from the floor that an operator gives to the Recover
// of [Admin].
//
// # Options
//
// [MaxTTL] and [NodeTimeout].
package redlock
