// Package golang has the targets that lock with libraries in Go, or with a command, behind the
// protocol of package target.
package golang

import (
	"context"
	"io"
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

// Has reports whether there is a target with a name.
func Has(name string) bool { return openers[name] != nil }

// Serve is the process of a target. It returns when its input ends.
func Serve(name string, in io.Reader, out io.Writer) error {
	return target.Serve(in, out, openers[name])
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
