// Package rediskit has the common parts of snib's Redis drivers, [redislock] and [redlock]. It is
// for authors of drivers; programs that use locks do not need it.
//
//   - [Script] is Lua that Redis runs, joined from files.
//   - [Info] is the answer to INFO.
//   - [Backoff] says when to retry, and [HeldError] how long a lock is held.
//
// [redislock]: https://pkg.go.dev/github.com/sniblock/snib/redislock
// [redlock]: https://pkg.go.dev/github.com/sniblock/snib/redlock
package rediskit
