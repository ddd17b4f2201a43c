package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
)

// A moodyStore is a store that fails as a test says.
type moodyStore struct {
	*memlock.Driver

	mu       sync.Mutex
	status   error // of Status
	acquires error // of Acquire
	took     time.Duration
}

func (s *moodyStore) set(status, acquires error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.acquires = status, acquires
}

func (s *moodyStore) Status(ctx context.Context, name string) (driver.Status, error) {
	s.mu.Lock()
	err, took := s.status, s.took
	s.mu.Unlock()
	time.Sleep(took)
	if err != nil {
		return driver.Status{}, err
	}
	return s.Driver.Status(ctx, name)
}

func (s *moodyStore) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	s.mu.Lock()
	err := s.acquires
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.Driver.Acquire(ctx, req)
}

// errGrace is the error of a store that grants nothing for so long.
type errGrace time.Duration

func (e errGrace) Error() string        { return "no grants for " + time.Duration(e).String() }
func (e errGrace) Is(target error) bool { return target == driver.ErrUnavailable }

func graceOf(err error) time.Duration {
	var e errGrace
	_ = errors.As(err, &e) // otherwise it is 0
	return time.Duration(e)
}

// get returns the answer of a service, without a network.
func get(ctx context.Context, s *Service, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w
}

// A lockedRow is a store that can't serve the lock "job".
type lockedRow struct{ *memlock.Driver }

func (s lockedRow) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	if req.Name == "job" {
		return nil, fmt.Errorf("%w: the row is locked", driver.ErrUnavailable)
	}
	return s.Driver.Acquire(ctx, req)
}

// TestOneLockFails checks that a store which can't serve one lock is not called down.
func TestOneLockFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := make(chan string, 100)
		s := newService(t, lockedRow{memlock.New()}, Options{Log: func(line string) { log <- line }})
		for range 30 {
			if w := post(t.Context(), s, wire.PathAcquire, `{"name":"job"}`); w.Code != 503 ||
				!strings.Contains(w.Body.String(), "the store did not serve the request") {
				t.Errorf("%d %s, want 503 that speaks of the request", w.Code, w.Body)
			}
			time.Sleep(probeInterval)
			if w := get(t.Context(), s, wire.PathReady); w.Code != http.StatusOK || !s.Stats().StoreUp {
				t.Errorf("%d %s, want 200: other locks can be had", w.Code, w.Body)
			}
		}
		if line := <-log; len(log) > 0 || !strings.HasPrefix(line, "store: it did not serve a request: ") {
			t.Errorf("the log has %q and %d more lines, want one of a request", line, len(log))
		}
	})
}

// TestStoreChanges checks what the log and clients are told of an outage and of a grace period.
func TestStoreChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &moodyStore{Driver: memlock.New(), acquires: errGrace(30 * time.Second)}
		var mu sync.Mutex
		var log []string
		s := newService(t, store, Options{Log: func(line string) { mu.Lock(); defer mu.Unlock(); log = append(log, line) },
			Grace: graceOf})
		acquire := func(want int, detail string, after int64) {
			t.Helper()
			w := post(t.Context(), s, wire.PathAcquire, `{"name":"job"}`)
			var p wire.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); w.Code != want || err != nil || p.Detail != detail ||
				p.RetryAfter != after {
				t.Errorf("%d %s, want %d, %q, and retry_after_ms %d", w.Code, w.Body, want, detail, after)
			}
		}
		logs := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			ok := len(log) == len(want)
			for i := 0; ok && i < len(want); i++ {
				ok = strings.HasPrefix(log[i], want[i])
			}
			if !ok {
				t.Errorf("log = %q, want lines that begin with %q", log, want)
			}
			log = nil
		}

		synctest.Wait()
		if st := s.Stats(); !st.StoreUp || st.Grace <= 0 {
			t.Errorf("before somebody asked, the store is shown as %+v in the grace period", st)
		}
		logs("store: it grants nothing until ")
		store.set(nil, nil)                           // earlier than it has said
		time.Sleep(2*probeInterval + probeInterval/2) // and so between two probes
		ready := get(t.Context(), s, wire.PathReady).Body.String()
		if s.Stats().Grace > 0 || !strings.Contains(ready, `"status":"ready"`) {
			t.Errorf("readyz once the store grants again: %s, and a grace period of %v", ready, s.Stats().Grace)
		}
		logs("store: it grants again")
		store.set(nil, errGrace(30*time.Second)) // it has restarted between two probes
		time.Sleep(2 * probeInterval)
		store.set(nil, nil)
		time.Sleep(31 * time.Second)
		logs("store: it grants nothing until ", "store: it grants again")

		refused := fmt.Errorf("%w: dial tcp 192.0.2.1:6379: %w", driver.ErrUnavailable, syscall.ECONNREFUSED)
		store.set(refused, refused)
		for range 3 {
			acquire(503, "the store refuses connections: its server does not run", 1000)
		}
		time.Sleep(2 * probeInterval)
		if st := s.Stats(); st.StoreUp {
			t.Error("the store is shown as up while it is down")
		}
		store.set(errNoAnswer, errNoAnswer)
		acquire(503, "the store does not answer in time", 1000)
		store.set(errNoAnswer, nil)
		time.Sleep(10 * probeInterval)
		logs("store: it did not serve a request: "+refused.Error(), "store: down: "+refused.Error())

		store.set(nil, errGrace(30*time.Second))
		time.Sleep(2 * probeInterval)
		logs("store: up again, after ", "store: it grants nothing until ")
		acquire(503, "the store has restarted, and grants nothing for another 30s", 30_000)
		if w := get(t.Context(), s, wire.PathReady); w.Code != http.StatusOK ||
			!strings.Contains(w.Body.String(), `"status":"grace"`) {
			t.Errorf("readyz in the grace period: %d %s, want 200 and that it is one", w.Code, w.Body)
		}
		if st := s.Stats(); !st.StoreUp || st.Grace <= 0 {
			t.Errorf("the store is shown as %+v in the grace period", st)
		}
		store.set(nil, errGrace(50*time.Second)) // it has restarted once more
		time.Sleep(2 * probeInterval)
		store.set(refused, refused)
		time.Sleep(51 * time.Second)
		logs("store: it grants nothing until ", "store: down: "+refused.Error())
		store.set(nil, nil)
		time.Sleep(2 * probeInterval)
		logs("store: up again, after ", "store: it grants again")
		time.Sleep(time.Hour)
		logs()
	})
}

// TestStoreOnlyReads checks that a replica is not ready whose store can be read, and grants
// nothing, and that the log says why.
func TestStoreOnlyReads(t *testing.T) {
	const full, deleted = "disk is full", "the file; was deleted"
	unavailable := fmt.Errorf("%s: %w", full, driver.ErrUnavailable)
	acquire := func(s *Service) *httptest.ResponseRecorder {
		return post(context.Background(), s, wire.PathAcquire, `{"name":"job"}`)
	}
	readID := func(s *Service) *httptest.ResponseRecorder { return get(context.Background(), s, wire.PathStore) }
	for _, tt := range []struct {
		err  error
		ask  func(*Service) *httptest.ResponseRecorder
		want int
		log  []string // before "store: up again"
	}{
		{unavailable, acquire, 503, []string{"store: it did not serve a request: " + full, "store: down: " + full}},
		{unavailable, readID, 503, []string{"fault: the id of the store: " + full, "store: down: " + full}},
		{errors.New("the file\nwas deleted"), acquire, 500, []string{"fault: " + deleted, "store: down: " + deleted}},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, lines := &moodyStore{Driver: memlock.New()}, make(chan string, 100)
			s := newService(t, store, Options{Log: func(line string) { lines <- line },
				Identity: func(context.Context) (string, error) { return "", tt.err }})
			check := func(w *httptest.ResponseRecorder, want int) {
				t.Helper()
				if w.Code != want {
					t.Errorf("%v: %d %s, want %d", tt.err, w.Code, w.Body, want)
				}
				time.Sleep(2 * probeInterval)
			}
			store.set(nil, tt.err)
			for range 3 {
				check(tt.ask(s), tt.want)
				check(get(t.Context(), s, wire.PathReady), http.StatusServiceUnavailable)
			}
			store.set(nil, nil)
			time.Sleep(2 * probeInterval)
			check(get(t.Context(), s, wire.PathReady), http.StatusOK)
			for _, want := range append(tt.log, "store: up again") {
				if got := <-lines; !strings.HasPrefix(got, want) {
					t.Errorf("%v: log = %q, want %q", tt.err, got, want)
				}
			}
			if len(lines) > 0 {
				t.Errorf("%v: the log goes on with %q", tt.err, <-lines)
			}
		})
	}
}

// TestStrangersDoNotFillTheLog checks that the log has few of the lines of net/http.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	lines := 0
	server := newService(t, memlock.New(), Options{Log: func(string) { lines++ }}).NewServer()
	for range 100 {
		server.ErrorLog.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	}
	if lines != 1 {
		t.Errorf("the log has %d lines, want 1", lines)
	}
}

// TestAuditFaultIsLogged checks that the log says why nothing is broken or reserved.
func TestAuditFaultIsLogged(t *testing.T) {
	logged := ""
	s := newService(t, memlock.New(), Options{Log: func(line string) { logged = line }})
	s.problemOf(fmt.Errorf("%w: disk is full", wire.NewProblem(wire.ProblemAudit, "", 0)))
	if !strings.Contains(logged, "disk is full") {
		t.Errorf("log = %q, want the cause", logged)
	}
}

// TestGoneClientIsNoOutage checks that a client which gives its request up says nothing about the
// store.
func TestGoneClientIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &moodyStore{Driver: memlock.New(), took: probeInterval / 4}
		s := newService(t, store, Options{Log: func(line string) { t.Errorf("log: %s", line) }})
		time.Sleep(store.took + probeInterval/2) // between two probes
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		store.set(fmt.Errorf("%w: %w", driver.ErrUnavailable, context.Canceled), nil)
		get(ctx, s, wire.PathLock+"?name=job")
	})
}

// TestWaitThroughOutage checks that a request waits for a store that comes back in time, and for as
// long as it says, and not longer.
func TestWaitThroughOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &moodyStore{Driver: memlock.New()}
		s := newService(t, store, Options{})
		store.set(nil, errGrace(time.Minute))
		began := time.Now()
		if w := post(t.Context(), s, wire.PathAcquire, `{"name":"job","wait_ms":3000}`); w.Code != 503 || time.Since(began) < 3*time.Second || time.Since(began) > 4*time.Second {
			t.Errorf("%d after %v, want 503 after 3 s", w.Code, time.Since(began))
		}
		go func() { time.Sleep(2 * time.Second); store.set(nil, nil) }()
		if w := post(t.Context(), s, wire.PathAcquire, `{"name":"other","wait_ms":3000}`); w.Code != 200 {
			t.Errorf("%d %s, want 200: the store is back after 2 s", w.Code, w.Body)
		}
		began = time.Now()
		if post(t.Context(), s, wire.PathAcquire, `{"name":"third"}`); time.Since(began) != 0 {
			t.Errorf("a request that does not wait took %v", time.Since(began))
		}
	})
}
