// Package redlock keeps locks on a majority of N independent servers of Redis 6.2 or later. It
// implements Redlock, extended with fencing tokens and with a rule for servers that lose their
// memory.
//
//	servers := []rueidis.ClientOption{
//		{InitAddress: []string{"a:6379"}}, {InitAddress: []string{"b:6379"}}, {InitAddress: []string{"c:6379"}},
//	}
//	d, err := redlock.Open(ctx, servers)
//
// N is odd, 3 to 15. Fewer than half of the nodes may fail, hang or forget at a time. The
// Init of [Admin] makes new servers a cluster; without it, clients admit new servers after
// [MaxTTL]. Clients of the published algorithm (redsync, node-redlock) and snib exclude one another
// on the same nodes.
//
// Tokens stay in order as long as a majority keeps what it acknowledged, whatever clocks do
// ([driver.FencingDurable]). Leases end by the clocks of the nodes, which must run at the same rate
// and not jump forward. Waiters are not served in order.
//
// docs/backends/redlock.md describes keys, waiting, fencing and failover, and docs/redlock-proof.md
// says why two holds exclude each other.
package redlock
