package zklock_test

import (
	"context"
	"os"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/zktest"
	"github.com/sniblock/snib/zklock"
)

// oneServer is that of tests that neither break it nor count its watches. Each has its own names.
var oneServer livetest.Shared[*zktest.Server]

func shared(t testing.TB) *zktest.Server {
	t.Helper()
	return oneServer.Get(t, func(t testing.TB) *zktest.Server { return zktest.Single(t) })
}

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do, oneServer.End)) }

// A job is the work of a child process with a driver of its own.
type job struct {
	Req     driver.Request
	Servers []string
}

func (j job) do(ctx context.Context) error {
	d, err := zklock.New(j.Servers, options()...)
	if err != nil {
		return err
	}
	defer d.Close()
	return livetest.Hold(ctx, d, j.Req)
}

// startHolder starts a child process that holds a lock, or waits for it.
func startHolder(t testing.TB, servers []string, req driver.Request) *livetest.Child {
	t.Helper()
	return livetest.StartChild(t, job{req, servers})
}
