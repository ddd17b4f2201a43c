package etcdlock_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/etcdlock"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/etcdtest"
)

// timeout is the session timeout of the tests: three times the shortest that etcd grants with its
// default election timeout, so that sessions survive the delays of keep-alives on a busy
// machine.
const timeout = 6 * time.Second

func TestConformance(t *testing.T) {
	server := etcdtest.Start(t)
	drivertest.Run(t, harness([]*etcdtest.Server{server}, func(*testing.T) {
		server.Kill()
		server.Restart()
	}))
}

// TestConformanceCluster has three members; each driver knows all of them. TestConformanceFailed
// has three, too, and one of them fails.
func TestConformanceCluster(t *testing.T) {
	livetest.Long(t)
	cluster := etcdtest.Cluster(t, 3)
	drivertest.Run(t, harness(cluster.Members, func(*testing.T) {
		for _, m := range cluster.Members {
			m.Kill()
		}
		cluster.Restart()
	}))
}

// TestConformanceLogin has a server that requires a login.
func TestConformanceLogin(t *testing.T) {
	livetest.Long(t)
	server := etcdtest.Start(t)
	server.RequireLogin()
	h := harness([]*etcdtest.Server{server}, nil)
	h.Secret = etcdtest.Password
	drivertest.Run(t, h)
}

// harness returns a harness for drivers on servers. Each driver reaches them through its own
// proxies.
func harness(servers []*etcdtest.Server, restart func(*testing.T)) drivertest.Harness {
	paths := livetest.Paths{}
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Driver {
			var addrs []string
			var own []*livetest.Proxy
			for _, s := range servers {
				proxy := livetest.NewProxy(t, s.Addr())
				addrs, own = append(addrs, proxy.Addr()), append(own, proxy)
			}
			d := newDriver(t, dial(t, servers[0], addrs...), etcdlock.Timeout(timeout))
			paths[d] = own
			return d
		},
		TTL:   200 * time.Millisecond,
		Sever: paths.Sever,
		Stall: paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			return startHolder(t, servers[0], req).Kill
		},
		Restart: restart,
		Empty:   map[string]func(*testing.T){"del": func(*testing.T) { servers[0].Ctl("del", "", "--prefix") }},
	}
}

// dial returns a client that is closed at the end of the test. It reaches server by addrs, or
// directly if there are none.
func dial(t testing.TB, server *etcdtest.Server, addrs ...string) *clientv3.Client {
	t.Helper()
	if len(addrs) == 0 {
		addrs = []string{server.Addr()}
	}
	if server != nil && server.Login() {
		return dialAs(t, "root", etcdtest.Password, addrs)
	}
	return dialAs(t, "", "", addrs)
}

// dialAs returns a client of a user that is closed at the end of the test.
func dialAs(t testing.TB, user, password string, addrs []string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := connect(user, password, addrs, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func connect(user, password string, addrs []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		Username: user, Password: password, DialOptions: opts})
}
