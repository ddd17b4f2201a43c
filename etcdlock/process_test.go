package etcdlock_test

import (
	"context"
	"os"
	"testing"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do)) }

// A job is the work of a child process with a driver of its own.
type job struct {
	jobtest.Job
	Addrs    []string
	Password string
}

func (j job) do(ctx context.Context) error {
	client, err := connect(j.Password, j.Addrs)
	if err != nil {
		return err
	}
	defer client.Close()
	d, err := etcdlock.New(client, etcdlock.Timeout(timeout))
	if err != nil {
		return err
	}
	defer d.Close()
	return j.Do(ctx, d)
}

// startHolder starts a child process that holds a lock, and returns when it does.
func startHolder(t testing.TB, server *etcdtest.Server, req driver.Request) *livetest.Child {
	t.Helper()
	j := job{Job: jobtest.Job{Role: "hold", Req: req}, Addrs: []string{server.Addr()}}
	if server.Login() {
		j.Password = etcdtest.Password
	}
	c := livetest.StartChild(t, j)
	c.Expect("held")
	return c
}
