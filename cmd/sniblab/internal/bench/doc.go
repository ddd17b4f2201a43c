// Package bench compares snib with other lock libraries, and with locks by hand, on servers that
// its benchmarks start. There is one benchmark for each store:
//
//	go test -run '^$' -bench Postgres ./cmd/sniblab/internal/bench
//
// Its parts are named after the library and the load, such as lib=snib/64-goroutines. A cycle is
// one Acquire and one Release. The library named floor is none: it is the least that a lock on
// Redis costs, and does not wait.
//
// "make bench" runs whole rounds, each beginning with another library, because a busy moment of the
// machine would otherwise hit one library only; benchstat makes a table of them. Compare figures of
// one run: absolute ones differ from machine to machine and from hour to hour.
package bench
