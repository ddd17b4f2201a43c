package served

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/jobtest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/serve"
	"github.com/sniblock/snib/sqlitelock"
)

// A replica is a service with its server, in this process.
type replica struct {
	service *serve.Service
	server  *http.Server
	addr    string
}

// startReplica starts a replica over the store of d, which it closes in the end.
func startReplica(t testing.TB, d driver.Driver, opts serve.Options) *replica {
	t.Helper()
	s, err := serve.New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{s, &http.Server{Handler: s}, listener.Addr().String()}
	go func() { _ = r.server.Serve(listener) }() // until it is closed
	t.Cleanup(func() {
		_ = r.server.Close() // clients that have gone are of no interest
		if err := s.Drain(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("Drain = %v", err)
		}
		_ = d.Close() // every driver was closed by then, or its test has failed
	})
	return r
}

// open returns a driver with a path of its own to each replica.
func open(t testing.TB, paths jobtest.Paths, addrs ...string) *remotelock.Driver {
	t.Helper()
	var conf remotelock.Config
	var proxies []*livetest.Proxy
	for _, addr := range addrs {
		p := livetest.NewProxy(t, addr)
		proxies = append(proxies, p)
		conf.Servers = append(conf.Servers, "http://"+p.Addr())
	}
	d, err := remotelock.Open(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if paths != nil {
		paths[d] = proxies
	}
	return d
}

// harness returns a harness whose drivers reach the replicas in this order.
func harness(addrs ...string) drivertest.Harness {
	paths := jobtest.Paths{}
	return drivertest.Harness{
		Open:  func(t *testing.T) driver.Driver { return open(t, paths, addrs...) },
		TTL:   300 * time.Millisecond,
		Sever: paths.Sever, Stall: paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			p := livetest.NewProxy(t, addrs[0])
			return jobtest.KeepThrough(t, []*livetest.Proxy{p}, open(t, nil, p.Addr()), req)
		},
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, harness(startReplica(t, memlock.New(), serve.Options{}).addr))
}

func TestConformanceSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks.db")
	d, err := sqlitelock.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	h := harness(startReplica(t, d, serve.Options{}).addr)
	drivertest.Run(t, h)
}
