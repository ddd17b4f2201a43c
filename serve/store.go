package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
)

// A storeWatch knows the state of the store, and logs each change of it once. It is safe for
// concurrent use. Only the probe changes the state: a request may fail because of its lock alone.
type storeWatch struct {
	log   func(string)
	grace func(error) time.Duration // nil: there is none
	known chan struct{}             // closed when the store was asked for the first time

	suspect atomic.Bool // it may be that the store grants nothing, although it can be read

	mu    sync.Mutex
	why   string         // of an outage; "": the store is up
	since driver.Instant // the outage began
	until driver.Instant // the end of the grace period; zero: there is none
}

// graceSlack is by how much the end of one grace period seems to move, because answers take time.
const graceSlack = 5 * time.Second

// probeInterval is the pause between two questions to the store whether it answers.
const probeInterval = time.Second

// explain says to clients why the store is unavailable, without names of servers.
func (w *storeWatch) explain(err error) (why string, grace time.Duration) {
	if w.grace != nil {
		grace = w.grace(err)
	}
	switch {
	case grace > 0:
		return fmt.Sprintf("the store has restarted, and grants nothing for another %v", grace.Round(time.Second)), grace
	case errors.Is(err, driver.ErrFull):
		return "the store's server has no connection left for this replica", 0
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the store refuses connections: its server does not run", 0
	case errors.Is(err, errNoAnswer), errors.Is(err, context.DeadlineExceeded):
		return "the store does not answer in time", 0
	}
	return "the store did not serve the request", 0
}

// note notes the answer to a probe. In a grace period the store is up.
func (w *storeWatch) note(err error) {
	why, grace := "", time.Duration(0)
	if err != nil {
		why, grace = w.explain(err)
	}
	if grace > 0 {
		why = ""
	}
	now := driver.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case why != "" && w.why == "":
		w.log("store: down: " + oneLine(err.Error()))
		w.since = now
	case why == "" && w.why != "":
		w.log(fmt.Sprintf("store: up again, after %v", now.Sub(w.since).Round(time.Second)))
	}
	w.why = why
	switch {
	case grace > 0:
		// The store tells the rest of the time each time, so the end moves only if it has restarted.
		if moved := now.Add(grace).Sub(w.until); moved.Abs() > graceSlack {
			w.log(fmt.Sprintf("store: it grants nothing until %s: %v", time.Now().Add(grace).Format(time.RFC3339), err))
		}
		w.until = now.Add(grace)
	case err == nil && !w.until.IsZero(): // it may have ended early
		w.until = driver.Instant{}
		w.log("store: it grants again")
	}
}

// watch asks the store until the service drains.
func (s *Service) watch() {
	for isFirst := true; ; isFirst = false {
		err := s.probe()
		if s.isDraining() {
			return // the probe was given up
		}
		s.store.note(err)
		if isFirst {
			close(s.store.known)
		}
		select {
		case <-time.After(probeInterval):
		case <-s.draining.Done():
		}
	}
}

// probeName is the name whose status the probe asks for. The name of the lock that it takes begins
// with it, so that a Redis Cluster keeps both in one slot: if that is down, both fail.
const probeName = "{snib-ready}"

// probe asks whether the store answers. If there may be a grace period, or after an error, it asks
// for a lock, too: a file on a full disk, or one that was deleted, can still be read.
func (s *Service) probe() error {
	ctx, cancel := bounded(s.draining)
	defer cancel()
	_, err := s.driver.Status(ctx, probeName)
	if err == nil && (s.store.suspect.Swap(false) || s.opts.Grace != nil) {
		var l driver.Lease
		if l, err = s.driver.Acquire(ctx, driver.Request{
			Name: probeName + "/" + rand.Text(), ID: newGrantID(rand.Text()).String(), NoWait: true, Detached: true,
			TTL: min(wire.DefaultTTL, cmp.Or(s.info.MaxTTL, wire.DefaultTTL)),
		}); err == nil {
			_ = l.Release(ctx) // if that fails, it lapses
		}
	}
	if err != nil {
		s.store.suspect.Store(true)
	}
	return err
}

// state returns why the store is down, for clients, "" if it is up; and how long it still grants
// nothing.
func (w *storeWatch) state() (why string, grace time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why, max(0, w.until.Sub(driver.Now()))
}

// ready answers whether the replica should get requests: it does not shut down, and it reaches the
// store. In a grace period the store renews and releases holds, so the answer is 200.
func (s *Service) ready(w http.ResponseWriter, r *http.Request) error {
	select {
	case <-s.store.known:
	case <-s.draining.Done():
		return errDraining()
	case <-r.Context().Done():
		return context.Cause(r.Context())
	}
	switch why, grace := s.store.state(); {
	case why != "":
		return wire.NewProblem(wire.ProblemUnavailable, why, probeInterval)
	case grace > 0:
		return writeJSON(w, http.StatusOK, map[string]any{"status": "grace", "grace_ms": wire.Millis(grace)})
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// unavailable returns the answer to a request that the store did not serve. The log says why,
// unless it has said so of the whole store.
func (s *Service) unavailable(err error) *wire.Problem {
	why, grace := s.store.explain(err)
	if down, left := s.store.state(); down == "" && left == 0 {
		s.unserved.printf("store: it did not serve a request: %v", err)
		s.store.suspect.Store(true)
	}
	kind := wire.ProblemUnavailable
	switch {
	case grace > 0:
		kind = wire.ProblemGrace
	case errors.Is(err, driver.ErrFull):
		kind = wire.ProblemFull
	}
	return wire.NewProblem(kind, why, max(time.Second, grace))
}

// storeID returns the identity of the store, "" if it has none.
func (s *Service) storeID(ctx context.Context) (string, error) {
	if known := s.identity.Load(); known != nil {
		return *known, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	id, err := s.opts.Identity(ctx)
	if err == nil {
		s.identity.Store(&id)
	}
	return id, s.beside("the id of the store", err)
}

// beside returns the answer to a failure beside the locks. The probe says if the store is down.
func (s *Service) beside(what string, err error) error {
	if errors.Is(err, context.Canceled) || !isNoAnswer(err) {
		return err
	}
	s.fault(fmt.Errorf("%s: %w", what, err))
	return wire.NewProblem(wire.ProblemUnavailable, what+" is unavailable: see the log of the service", time.Second)
}

// fault logs an error that may come from the store.
func (s *Service) fault(err error) {
	s.faults.printf("fault: %v", err)
	s.store.suspect.Store(true)
}

// isNoAnswer reports that a store or a database was not reached, or not in time.
func isNoAnswer(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) || errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded)
}

// checkStore refuses a request that is for another store.
func (s *Service) checkStore(r *http.Request) error {
	want := r.Header.Get(wire.HeaderStore)
	if want == "" {
		return nil
	}
	id, err := s.storeID(r.Context())
	if err == nil && id != want {
		err = wire.NewProblem(wire.ProblemOtherStore,
			"this replica has another store than the one that the request is for: "+
				"all replicas must have the same; if it was replaced, start the client again", time.Second)
	}
	return err
}
