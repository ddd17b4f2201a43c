//go:build linux

package served

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/serve"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, replicaJob.serve)) }

// A replicaJob is the job of a child: to be a replica.
type replicaJob struct {
	Store store
	Addr  string
}

// serve runs until the tests end.
func (j replicaJob) serve(ctx context.Context) error {
	d, err := j.Store.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := serve.New(d, serve.Options{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", j.Addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s}
	context.AfterFunc(ctx, func() { _ = server.Close() }) // it says nothing of interest
	livetest.Say("ready")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return s.Drain(context.Background())
}

// A process is a replica in a process of its own.
type process struct {
	t     testing.TB
	job   replicaJob
	child *livetest.Child // nil while it is dead
}

// newProcess starts a replica.
func newProcess(t testing.TB, s store) *process {
	t.Helper()
	p := &process{t: t, job: replicaJob{s, net.JoinHostPort("127.0.0.1", strconv.Itoa(livetest.FreePort(t)))}}
	p.start()
	return p
}

// start starts the replica if it is dead.
func (p *process) start() {
	p.t.Helper()
	if p.child == nil {
		p.child = livetest.StartChild(p.t, p.job)
		p.child.Expect("ready")
	}
}

// kill kills the replica with SIGKILL.
func (p *process) kill() {
	p.child.Kill()
	p.child = nil
}

// TestConformancePostgres runs the suite through a replica in a process of its own. In this one,
// its pool might start a goroutine at any time, which the suite would take for one of the driver.
func TestConformancePostgres(t *testing.T) {
	h := harness(nil, newProcess(t, startStore(t, postgres)).job.Addr)
	h.Secret = pgtest.Password()
	drivertest.Run(t, h)
}

// TestConformanceKilled runs the suite with two replicas. In each case the first one is killed when
// the first driver has been opened, which has connections to it.
func TestConformanceKilled(t *testing.T) {
	for _, kind := range []storeKind{sqlite, redis, postgres} {
		t.Run(string(kind), func(t *testing.T) {
			if kind != redis { // the replicas are the same on each store
				livetest.Long(t)
			}
			s := startStore(t, kind)
			first, second := newProcess(t, s), newProcess(t, s)
			h := harness(nil, first.job.Addr, second.job.Addr)
			open := h.Open
			var current *testing.T
			h.Open = func(t *testing.T) driver.Driver {
				if t == current {
					return open(t)
				}
				current = t
				first.start()
				d := open(t)
				first.kill()
				return d
			}
			drivertest.Run(t, h)
		})
	}
}
