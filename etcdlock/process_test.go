package etcdlock_test

import (
	"context"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// oneServer is that of tests that neither break it nor count its watches.
var oneServer livetest.Shared[*etcdtest.Server]

func shared(t testing.TB) *etcdtest.Server {
	t.Helper()
	return oneServer.Get(t, func(t testing.TB) *etcdtest.Server { return etcdtest.Start(t) })
}

// dialShared returns a client of the server that tests share. It sees the keys of its test only,
// but the watches of held keys do not: a test whose holder must be told needs a server of its own.
func dialShared(t testing.TB) *clientv3.Client {
	t.Helper()
	client := dial(t, shared(t))
	test, _, _ := strings.Cut(t.Name(), "/")
	client.KV = namespace.NewKV(client.KV, test+"/")
	client.Watcher = namespace.NewWatcher(client.Watcher, test+"/")
	client.Lease = namespace.NewLease(client.Lease, test+"/")
	return client
}

func TestMain(m *testing.M) { os.Exit(livetest.Main(m, job.do, oneServer.End)) }

// A job is the work of a child process with a driver of its own.
type job struct {
	Req            driver.Request
	Addrs          []string
	User, Password string
}

func (j job) do(ctx context.Context) error {
	client, err := connect(j.User, j.Password, j.Addrs)
	if err != nil {
		return err
	}
	defer client.Close()
	d, err := etcdlock.New(client, etcdlock.Timeout(timeout))
	if err != nil {
		return err
	}
	defer d.Close()
	return livetest.Hold(ctx, d, j.Req)
}

// startHolder starts a child process that holds a lock, and returns when it does.
func startHolder(t testing.TB, server *etcdtest.Server, req driver.Request) *livetest.Child {
	t.Helper()
	j := job{Req: req, Addrs: []string{server.Addr()}}
	if server.Login() {
		j.User, j.Password = "root", etcdtest.Password
	}
	c := livetest.StartChild(t, j)
	c.Expect("held")
	return c
}
