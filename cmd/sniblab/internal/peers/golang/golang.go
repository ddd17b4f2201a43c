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
