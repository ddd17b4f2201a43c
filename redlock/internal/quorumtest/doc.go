// Package quorumtest tests package quorum in a simulated world: nodes that forget, messages
// that are late, lost and repeated, clocks that drift, jump and stand still, and processes that
// pause and die. A world has one seed, which determines everything that happens in it, so a
// failure can be reproduced.
//
// A [Node] is a model of what the script does in one Redis. A world has several nodes, clients
// that take, renew and release locks, agents that admit restarted nodes, and a nemesis that
// causes faults. Clients and agents use package quorum. A [Cell] says which faults there are. A
// judge, who knows the true time, checks that the world keeps the promises of its cell:
//
//   - Tokens are unique and in order: an acquisition that had its token before another one
//     began has the smaller token.
//   - A lock never has two holds that are valid, each by its own holder's clock.
//   - Nobody changes a key that belongs to another attempt.
//   - When the faults are over, every client gets a lock within a bounded time.
//
// A [Break] is a way to get the protocol wrong. The tests demand that the judge finds each one.
package quorumtest
