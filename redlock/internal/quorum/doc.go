// Package quorum is the core of Fenced Redlock, without input and output. It decides what to
// conclude from the answers of N independent Redis masters, and what to request next.
// Answers and times go in, requests and verdicts come out, so the same code runs over
// sockets and in simulation.
//
// It implements the algorithm of
// https://redis.io/docs/latest/develop/use/patterns/distributed-locks/ (Redlock) with fencing
// tokens, and with a rule for nodes that forget. A node keeps a counter for each stripe of
// names. For each lock it keeps a key, whose value identifies the attempt that has the lock. In
// one atomic step, a node that finds the key free takes it for the attempt and raises the
// counter to at least its next number. Therefore:
//
//   - L1: a counter never goes back, and
//   - L2: a key passes to another attempt only in a step that raises the counter.
//
// An attempt has its token once, on each node of some majority, there was a moment at which the
// key was the attempt's and the counter was that token. Usually the answers agree at once.
// Otherwise the attempt raises the counters that are behind, each under the condition that the
// key is still its own.
//
// For any two attempts A and B that got tokens, there is a node in both majorities. On that
// node the key passed from one to the other, say from A to B, between the two moments. By L2
// and L1, the token of B is greater than that of A. If A had its token before B began, then the
// key did pass from A to B. The argument needs no clock. It allows messages that are late, lost
// or repeated, if each attempt has a value of its own. The result is an ABD register (Attiya,
// Bar-Noy, Dolev, "Sharing memory robustly in message-passing systems", JACM 1995) whose ties
// the lock breaks.
//
// A node that restarts may have forgotten keys and counters. It neither grants nor counts until
// it is admitted; see [Admission].
package quorum
