package served

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/cmd/sniblab/internal/store"
	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/driver/drivertest"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/internal/livetest/mysqltest"
	"github.com/sniblock/snib/internal/livetest/pgtest"
	"github.com/sniblock/snib/internal/livetest/redistest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// ttl is the suite's TTL: long compared with a round trip to the service and from there to its
// store, even on a busy machine.
const ttl = 400 * time.Millisecond

// TestConformance runs the suite through a service in this process. Each driver has its
// own path to the service, which can be cut.
func TestConformance(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		drivertest.Run(t, harness(nil, startReplica(t, memlock.New(), "")))
	})
	t.Run("HTTP2", func(t *testing.T) {
		livetest.Long(t) // the nemesis has it, too
		certs := t.TempDir()
		secure := livetest.Certify(t, certs)
		drivertest.Run(t, harness(secure, startReplica(t, memlock.New(), certs)))
	})
	t.Run("SQLite", func(t *testing.T) { // TestConformanceKilled has Redis
		d, err := startStore(t, "sqlite").Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drivertest.Run(t, harness(nil, startReplica(t, d, "")))
	})
}

// startReplica starts a replica in this process, over the store of d, which it closes in the end.
// It returns its address. All that clients exchange with it is compared with the description of the
// API. Certs is a folder of livetest.Certify; "" means that the replica is without TLS.
func startReplica(t testing.TB, d driver.Driver, certs string) (addr string) {
	t.Helper()
	s, err := serve.New(d, serve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: described(t, parseDocument(t), s)}
	go func() { _ = store.Listen(server, listener, certs) }() // until it is closed
	t.Cleanup(func() {
		_ = server.Close() // clients that have gone are of no interest
		if err := s.Drain(t.Context()); err != nil && t.Context().Err() == nil {
			t.Errorf("Drain = %v", err)
		}
		_ = d.Close() // nobody uses it any more
	})
	return listener.Addr().String()
}

// startStore starts a store.
func startStore(t testing.TB, kind string) store.Store {
	t.Helper()
	s := store.Store{Kind: kind, SplitBrain: true}
	switch kind {
	case "sqlite":
		s.Addrs = []string{filepath.Join(t.TempDir(), "locks.db")}
	case "redis":
		s.Addrs = []string{redistest.Single(t).Used().Addr()}
	case "mysql":
		s.Addrs = []string{mysqltest.Start(t).Addr()}
	default:
		s.Addrs = []string{pgtest.Start(t).Addr()}
	}
	return s
}

// urlOf returns the URL of a server. Secure is the configuration of its clients, or nil.
func urlOf(addr string, secure *tls.Config) string {
	if secure != nil {
		return "https://" + addr
	}
	return "http://" + addr
}

// connect returns a driver with a path of its own to each replica, in this order.
func connect(t testing.TB, secure *tls.Config, addrs ...string) (*remotelock.Driver, []*livetest.Proxy) {
	t.Helper()
	conf := remotelock.Config{TLS: secure}
	var proxies []*livetest.Proxy
	for _, addr := range addrs {
		p := livetest.NewProxy(t, addr)
		proxies = append(proxies, p)
		conf.Servers = append(conf.Servers, urlOf(p.Addr(), secure))
	}
	d, err := remotelock.Open(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, proxies
}

// harness returns a harness whose drivers reach the replicas in this order.
func harness(secure *tls.Config, addrs ...string) drivertest.Harness {
	paths := livetest.Paths{}
	return drivertest.Harness{
		Open: func(t *testing.T) driver.Driver {
			d, proxies := connect(t, secure, addrs...)
			paths[d] = proxies
			return d
		},
		TTL:   ttl,
		Sever: paths.Sever, Stall: paths.Stall,
		Kill: func(t *testing.T, req driver.Request) func() {
			d, proxies := connect(t, secure, addrs...)
			return livetest.KeepThrough(t, proxies, d, req)
		},
	}
}

// longID returns an id that is as long as the service demands.
func longID(name string) string { return name + strings.Repeat("-", max(0, wire.MinID-len(name))) }
