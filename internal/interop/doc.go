// Package interop tests snib together with other locks that people have in the same store: the real clients, in Go and in Node.js. It has
// nothing but tests.
//
// What they have in common is a key of Redis with the name of the lock, made with SET key value NX PX, whose value only its holder knows.
// Each of them and snib exclude one another. Nobody but snib says so when it releases, so a waiter of snib looks five times a second
// while a stranger holds the lock, and strangers take turns with snib's waiters only by luck.
//
// The tests of Node.js install redlock and ioredis, as node/package-lock.json has them, in a temporary folder. They are skipped where there is
// no node, no npm or no way to the packages, and fail instead if the environment variable SNIB_REQUIRE names node.
package interop
