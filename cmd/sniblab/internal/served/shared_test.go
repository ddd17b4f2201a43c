package served

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// startHTTP2 starts a service with TLS, whose connections have a number of streams; 0 means as many
// as usual. Polls gets the client's address of each acquisition that comes over HTTP/2.
func startHTTP2(t *testing.T, streams int) (_ *httptest.Server, polls chan string) {
	t.Helper()
	polls = make(chan string, 10_000)
	s, err := serve.New(memlock.New(), serve.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			switch r.URL.Path {
			case wire.PathAcquire:
				polls <- r.RemoteAddr
			case wire.PathWithdraw:
			default:
				t.Errorf("%s shares a connection with requests that wait", r.URL.Path)
			}
		}
		s.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		_ = s.Drain(context.Background()) // nothing is under way
	})
	return server, polls
}

// open returns a driver for the service at addr, which may be a proxy for the server. It is closed
// in the end.
func open(t *testing.T, server *httptest.Server, addr string) *remotelock.Driver {
	t.Helper()
	secure := server.Client().Transport.(*http.Transport).TLSClientConfig
	d, err := remotelock.Open(t.Context(), remotelock.Config{Servers: []string{"https://" + addr}, TLS: secure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// next waits for the next request.
func next(t *testing.T, polls <-chan string) string {
	t.Helper()
	select {
	case addr := <-polls:
		return addr
	case <-time.After(livetest.Patience):
		t.Fatal("no such request comes")
		return ""
	}
}

// TestWaitersShareConnections checks that requests that wait share connections, and that neither
// they nor renewals wait for each other when all streams of a connection are in use.
func TestWaitersShareConnections(t *testing.T) {
	tests := []struct {
		name    string
		streams int // of a connection
		waiters int
		conns   int // at most: if requests come at once, each may have opened one
		atOnce  bool
	}{
		{name: "Usual", waiters: 600, conns: 10},
		{name: "FewStreams", streams: 10, waiters: 50, conns: 50, atOnce: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, polls := startHTTP2(t, tt.streams)
			d := open(t, server, server.Listener.Addr().String())
			held := livetest.Acquire(t, d, driver.Request{Name: "a", ID: longID("holder"), TTL: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			defer waiting.Wait()
			defer cancel()
			conns, gate := map[string]bool{}, make(chan struct{}) // waiters send no poll before gate is closed
			if !tt.atOnce {
				close(gate)
			}
			for i := range tt.waiters {
				queued := make(chan struct{})
				tell := sync.OnceFunc(func() { close(queued) })
				req := driver.Request{Name: "a", ID: longID(fmt.Sprint("waiter", i)), TTL: time.Hour}
				req.OnWait = func(error) { tell(); <-gate }
				waiting.Go(func() { _, _ = d.Acquire(ctx, req) }) // it ends with ctx
				<-queued
				if !tt.atOnce {
					conns[next(t, polls)] = true
				}
			}
			if tt.atOnce {
				close(gate)
				for range tt.waiters {
					conns[next(t, polls)] = true
				}
			}
			if len(conns) > tt.conns {
				t.Errorf("%d requests that wait have %d connections, want %d at most", tt.waiters, len(conns), tt.conns)
			}
			if err := d.Renew(t.Context(), []driver.Lease{held})[0].Err; err != nil {
				t.Errorf("Renew beside %d requests that wait = %v", tt.waiters, err)
			}
		})
	}
}

// TestDeadSharedConnection checks that a waiter goes on over another connection when that of its
// request is dead, although nobody closes it.
func TestDeadSharedConnection(t *testing.T) {
	t.Parallel()
	server, polls := startHTTP2(t, 0)
	p := livetest.NewProxy(t, server.Listener.Addr().String())
	holder, waiter := open(t, server, server.Listener.Addr().String()), open(t, server, p.Addr())
	held := livetest.Acquire(t, holder, driver.Request{Name: "a", ID: longID("holder"), TTL: time.Hour})
	w := livetest.Acquiring(t, waiter, driver.Request{Name: "a", ID: longID("waiter"), TTL: time.Hour})
	next(t, polls)
	slack := livetest.Slack(t)
	p.StallConnected()
	livetest.Release(t, held)
	began := time.Now()
	w.Get(t)
	// A request over HTTP/1.1 would wait for its answer for 25 s.
	if took := w.At.Sub(began); took > 15*time.Second+slack() {
		t.Errorf("the waiter got the lock %v after it was free", took)
	}
}
