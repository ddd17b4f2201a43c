// Command peers is the process of each target that is written in Go: the lock of another
// library, behind the protocol of package target. Its argument is the name of the target.
// Package peers builds it in a folder of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/target"
)

// An opener connects a client, as the first message of the judge says.
type opener func(ctx context.Context, hello target.Message) (target.Locker, error)

var openers = map[string]opener{
	"redsync":               openRedsync,
	"bsm-redislock":         openBSM,
	"rueidislock":           openRueidislock(2),
	"rueidislock-one":       openRueidislock(1),
	"etcd-concurrency":      openEtcd,
	"etcdctl":               openEtcdctl,
	"go-zookeeper":          openZooKeeper,
	"pg-advisory":           openAdvisory(false),
	"pg-advisory-ping":      openAdvisory(true),
	"mariadb-get-lock":      openGetLock(false),
	"mariadb-get-lock-ping": openGetLock(true),
	"flock":                 openFlock,
}

func main() {
	if len(os.Args) != 2 || openers[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: peers TARGET")
		os.Exit(64)
	}
	if err := target.Serve(os.Stdin, os.Stdout, openers[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ttl returns the TTL that the judge asks for.
func ttl(m target.Message) time.Duration { return time.Duration(m.TTL) * time.Millisecond }

// A lockerFunc is a [target.Locker] that is a function.
type lockerFunc func(ctx context.Context, wait time.Duration) (target.Hold, error)

// Acquire implements [target.Locker].
func (f lockerFunc) Acquire(ctx context.Context, wait time.Duration) (target.Hold, error) {
	return f(ctx, wait)
}

// A hold is a [target.Hold] of a library. Only release must be set.
type hold struct {
	token   uint64
	held    func() bool // nil if the library can't tell
	lost    <-chan struct{}
	release func(context.Context) error
}

// Token implements [target.Hold].
func (h hold) Token() uint64 { return h.token }

// Held implements [target.Hold].
func (h hold) Held() bool { return h.held == nil || h.held() }

// Lost implements [target.Hold].
func (h hold) Lost() <-chan struct{} { return h.lost }

// Release implements [target.Hold].
func (h hold) Release(ctx context.Context) error { return h.release(ctx) }
