package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// A replica is a service on a loopback address.
type replica struct {
	t       testing.TB
	service *Service
	url     string
}

// newService returns a service that anybody may use and that no server serves, as in the bubble of
// a test. It is drained in the end.
func newService(t *testing.T, d driver.Driver, opts Options) *Service {
	t.Helper()
	opts.Access = &testAccess{}
	s, err := New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Drain(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Drain = %v", err)
		}
	})
	return s
}

// post returns the answer of a service to a message, without a network.
func post(ctx context.Context, s *Service, path, message string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(message)), httptest.NewRecorder()
	r.Header.Set("Content-Type", wire.TypeJSON)
	s.ServeHTTP(w, r)
	return w
}

// startReplica starts a replica over a store.
func startReplica(t testing.TB, store *memlock.Store, opts Options) *replica {
	t.Helper()
	return startReplicaOf(t, store.Open(), opts)
}

func startReplicaOf(t testing.TB, d driver.Driver, opts Options) *replica {
	t.Helper()
	s, err := New(d, opts)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.NewServer()
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() {
		_ = server.Close() // clients that have gone are of no interest
		ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
		defer cancel()
		if err := s.Drain(ctx); err != nil {
			t.Errorf("Drain = %v", err)
		}
		_ = d.Close() // nobody uses it any more
	})
	return &replica{t, s, "http://" + listener.Addr().String()}
}

// An answer is an answer of a service.
type answer struct {
	status int
	header http.Header
	text   string

	granted wire.Granted
	problem wire.Problem
}

// send sends a request. It returns nothing if the client gives up.
func (r *replica) send(ctx context.Context, method, path, contentType, body string) *answer {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			r.t.Error(err)
		}
		return nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Error(err)
		return nil
	}
	a := &answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	var to any
	switch {
	case resp.Header.Get("Content-Type") == wire.TypeProblem:
		to = &a.problem
	case path == wire.PathAcquire:
		to = &a.granted
	default:
		return a
	}
	if err := json.Unmarshal(text, to); err != nil {
		r.t.Errorf("%s %s: %v in %s", method, path, err, text)
	}
	return a
}

// post posts a message, and checks the status of the answer.
func (r *replica) post(path string, message any, want int) *answer {
	r.t.Helper()
	return r.check(<-r.start(r.t.Context(), path, message), path, want)
}

// start posts a message in another goroutine.
func (r *replica) start(ctx context.Context, path string, message any) <-chan *answer {
	body, err := json.Marshal(message)
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan *answer, 1)
	go func() { done <- r.send(ctx, http.MethodPost, path, wire.TypeJSON, string(body)) }()
	return done
}

func (r *replica) check(a *answer, what string, want int) *answer {
	r.t.Helper()
	if a == nil || a.status != want {
		r.t.Fatalf("%s is answered %+v, want %d", what, a, want)
	}
	return a
}

// get gets a path, which must exist.
func (r *replica) get(path string) *answer {
	r.t.Helper()
	return r.check(r.send(r.t.Context(), http.MethodGet, path, "", ""), path, http.StatusOK)
}

// acquire acquires a lock that is free, or that the same id has.
func (r *replica) acquire(msg wire.Acquire) wire.Granted {
	r.t.Helper()
	return r.post(wire.PathAcquire, msg, http.StatusOK).granted
}

// queue sends a request for a lock that is held, and returns when the place is kept.
func (r *replica) queue(msg wire.Acquire) {
	r.t.Helper()
	msg.Wait = 1
	r.post(wire.PathAcquire, msg, http.StatusAccepted)
}

// lease names the hold of an answer.
func lease(g wire.Granted) wire.Lease {
	return wire.Lease{Name: g.Name, ID: g.ID}
}

// release releases a hold.
func (r *replica) release(g wire.Granted) {
	r.t.Helper()
	r.post(wire.PathRelease, lease(g), http.StatusNoContent)
}

// status returns what a store knows of a lock.
func status(t testing.TB, store *memlock.Store, name string) driver.Status {
	t.Helper()
	st, err := store.Open().Status(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// awaitStatus waits for a state of a lock.
func awaitStatus(t testing.TB, store *memlock.Store, name, what string, ok func(driver.Status) bool) {
	t.Helper()
	livetest.Await(t, what, func() error {
		st := status(t, store, name)
		if ok(st) {
			return nil
		}
		return fmt.Errorf("the lock is %+v", st)
	})
}

const long = int64(60_000)

func msg(name, id string) wire.Acquire {
	return wire.Acquire{Name: name, ID: longID(id), TTL: long}
}

// brief is shorter than what tests wait for.
const brief = 100 * time.Millisecond

// longID returns an id that is as long as the API demands.
func longID(name string) string { return name + strings.Repeat("-", max(0, wire.MinID-len(name))) }
