package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve"
)

// A scripted server is a replica whose answers a test can replace.
type scripted struct {
	*httptest.Server
	before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // reports whether it has answered
}

// startScripted starts a replica over the store of d.
func startScripted(t *testing.T, d driver.Driver) *scripted {
	t.Helper()
	server := new(scripted)
	server.Server = startWatched(t, d, func(w http.ResponseWriter, r *http.Request) bool {
		before := server.before.Load()
		return before != nil && (*before)(w, r)
	}, (*httptest.Server).Start)
	return server
}

// setBefore sets a func that gets each request first. It reports whether it has answered it.
func (s *scripted) setBefore(f func(http.ResponseWriter, *http.Request) bool) { s.before.Store(&f) }

// hang reads a request, so that the server notices if its client goes, and then waits for that.
func hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a client that has gone is noticed below
	<-r.Context().Done()
}

// openAll returns a driver for replicas.
func openAll(t *testing.T, servers ...*scripted) *remotelock.Driver {
	t.Helper()
	var conf remotelock.Config
	for _, s := range servers {
		conf.Servers = append(conf.Servers, s.URL)
	}
	return openDriver(t, conf)
}

// TestOutageOfWaiter ends a wait while the service is down, which had said before that the lock is
// held. The error must say that it is down now.
func TestOutageOfWaiter(t *testing.T) {
	for _, isDown := range []bool{false, true} {
		t.Run(fmt.Sprint("Down=", isDown), func(t *testing.T) {
			server := startScripted(t, memlock.New())
			d := openAll(t, server)
			livetest.Acquire(t, d, driver.Request{Name: "a", ID: longID("holder"), TTL: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var requests atomic.Int64
			server.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != wire.PathAcquire {
					return false
				}
				switch n := requests.Add(1); {
				case n == 1: // it is queued
					return false
				case n == 2 && isDown:
					w.WriteHeader(http.StatusBadGateway)
				default:
					cancel()
					hang(r)
				}
				return true
			})
			_, err := d.Acquire(ctx, driver.Request{Name: "a", ID: longID("waiter"), TTL: time.Hour})
			if !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrUnavailable) != isDown {
				t.Errorf("Acquire = %v, want one that matches ErrUnavailable: %t", err, isDown)
			}
		})
	}
}

// TestWithdrawalFromAll gives an acquisition up that may be known to two replicas, of which one
// hangs. The other one must learn it nevertheless.
func TestWithdrawalFromAll(t *testing.T) {
	store := new(memlock.Store)
	hung, other := startScripted(t, store.Open()), startScripted(t, store.Open())
	d := openAll(t, hung, other)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	withdrawn := make(chan struct{})
	hung.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == wire.PathAcquire {
			w.WriteHeader(http.StatusBadGateway)
		} else {
			hang(r)
		}
		return true
	})
	other.setBefore(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == wire.PathAcquire {
			cancel()
			hang(r)
		} else {
			close(withdrawn)
		}
		return true
	})
	if _, err := d.Acquire(ctx, driver.Request{Name: "a", ID: longID("o"), TTL: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire = %v, want that of its context", err)
	}
	select {
	case <-withdrawn:
	case <-time.After(livetest.Patience):
		t.Error("the replica that answers gets no withdrawal")
	}
}

// TestLateWithdrawal loses the answer to an acquisition, and delays its withdrawal until the caller
// acquires the lock again. The withdrawal must end the first hold, and not the second one.
func TestLateWithdrawal(t *testing.T) {
	store := new(memlock.Store)
	server := startScripted(t, store.Open())
	d := openAll(t, server)
	again := make(chan struct{})
	tell := sync.OnceFunc(func() { close(again) })
	var acquisitions, withdrawals atomic.Int64
	server.setBefore(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == wire.PathAcquire && acquisitions.Add(1) == 1:
			server.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
			w.Header().Set("Content-Type", wire.TypeProblem) // another answer would be asked for at once
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(wire.NewProblem(wire.ProblemUnavailable, "", 0))
			return true
		case r.URL.Path == wire.PathWithdraw && withdrawals.Add(1) == 1:
			<-again
		}
		return false
	})
	req := driver.Request{Name: "a", ID: longID("o"), TTL: time.Hour, NoWait: true}
	if _, err := d.Acquire(t.Context(), req); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("the first Acquire = %v, want ErrUnavailable", err)
	}
	req.ID, req.NoWait = longID("next"), false
	req.OnWait = func(error) { tell() }
	l, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil { // after the withdrawal
		t.Fatal(err)
	}
	st, err := store.Open().Status(t.Context(), "a")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Token != l.Grant().Token {
		t.Errorf("the lock is %+v, %v, want the hold with the token %d", st, err, l.Grant().Token)
	}
}

// TestServiceOverService checks that a service does not begin to serve another one: all requests
// that wait would fail.
func TestServiceOverService(t *testing.T) {
	d := openAll(t, startScripted(t, memlock.New()))
	if _, err := serve.New(d, serve.Options{}); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "another lock service") {
		t.Errorf("New = %v, want ErrInvalid", err)
	}
}
