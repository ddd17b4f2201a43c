// Package rediskit has what snib's Redis drivers, [redislock] and [redlock], have in common. It
// is for authors of drivers; users of locks do not need it.
//
// [redislock]: https://pkg.go.dev/github.com/sniblock/snib/redislock
// [redlock]: https://pkg.go.dev/github.com/sniblock/snib/redlock
package rediskit
