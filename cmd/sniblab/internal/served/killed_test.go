//go:build linux

package served

import (
	"os"
	"testing"

	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }

// TestConformanceSQL runs the suite through a replica in a process of its own. In this one, its
// pool might start a goroutine at any time, which the suite would take for one of the driver.
func TestConformanceSQL(t *testing.T) {
	for kind, secret := range map[string]string{"pg": pgtest.Password(), "mysql": mysqltest.Password()} {
		t.Run(kind, func(t *testing.T) {
			h := harness(nil, store.StartReplica(t, store.NewService(t, startStore(t, kind), "")).Addr())
			h.Secret = secret
			drivertest.Run(t, h)
		})
	}
}

// TestConformanceKilled runs the suite with two replicas. In each case the first one is killed when
// the first driver has been opened, which has connections to it.
func TestConformanceKilled(t *testing.T) {
	for _, kind := range []string{"sqlite", "redis", "pg", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			if kind != "redis" { // the replicas are the same on each store
				livetest.Long(t)
			}
			s := startStore(t, kind)
			first, second := store.StartReplica(t, store.NewService(t, s, "")), store.StartReplica(t, store.NewService(t, s, ""))
			h := harness(nil, first.Addr(), second.Addr())
			open, dead := h.Open, false
			var current *testing.T
			h.Open = func(t *testing.T) driver.Driver {
				if t == current {
					return open(t)
				}
				current = t
				if dead {
					first.Restart()
				}
				d := open(t)
				first.Kill()
				dead = true
				return d
			}
			drivertest.Run(t, h)
		})
	}
}
