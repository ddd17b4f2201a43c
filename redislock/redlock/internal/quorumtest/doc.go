// Package quorumtest puts package quorum to the test, in a world that is simulated: nodes that forget, messages that are late, lost and
// repeated, clocks that drift, jump and stand still, and processes that pause and die. A world has one seed, and what happens in it
// follows from that seed alone, so a failure can be looked at again.
//
// A [Node] is a model of what the script does in one Redis. A world has several of them, clients that take, renew and release locks
// by package quorum, agents that admit nodes which restarted, by the same, and a nemesis that makes trouble. A [Cell] says what
// trouble, and a judge who knows the true time holds the world to what is promised in that cell:
//
//   - Tokens are unique, and in order: an acquisition that had its token before another began has the smaller one.
//   - Of one lock there are never two holds that are valid, each by its own holder's clock.
//   - Nobody changes a key that is another's.
//   - When the trouble is over, everybody gets a lock within a bound.
//
// A [Break] is a way to get the protocol wrong. The tests demand that each is found out.
package quorumtest
