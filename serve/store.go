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

// A storeState is what a replica knows of its store.
type storeState struct {
	Why   string        // it is down, for clients; "": it is up
	Grace time.Duration // how long it still grants nothing; 0: it grants
}

// A storeWatch knows the state of the store, and logs each change of it once. It is safe for
// concurrent use.
//
// A request whose answer is that the store is unavailable begins an outage. From then on the store
// is asked once in probeInterval, until it answers. So an outage and its end are seen although
// nobody asks for /readyz.
type storeWatch struct {
	log   func(string)
	grace func(error) time.Duration // nil: there is none
	probe func(context.Context) error
	start func(func())
	stop  <-chan struct{}

	suspect atomic.Bool // a request has failed, and no probe has acquired a lock since

	mu     sync.Mutex
	why    string         // of an outage; "": the store is up
	since  driver.Instant // the outage began
	asking *probe         // the latest question to the store

	inGrace   bool
	until     driver.Instant // the end of the grace period
	isProbing bool           // await runs
}

// graceSlack is by how much the end of one grace period seems to move, because answers take time.
const graceSlack = 5 * time.Second

// probeInterval is how long an answer of the store is used for everybody who asks whether it is up.
const probeInterval = time.Second

// A probe is a question whether the store answers.
type probe struct {
	began  driver.Instant
	isOver bool // guarded by storeWatch.mu
	ended  chan struct{}
	err    error // once ended is closed
}

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
	return "the store is unavailable", 0
}

// note takes in an error of a request to the store. It returns what clients are told.
func (w *storeWatch) note(err error) (why string, grace time.Duration) {
	w.suspect.Store(true)
	why, grace = w.explain(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setLocked(why, grace, err)
	return why, grace
}

// setLocked notes the state of the store; why is "" if it is up. In a grace period it is.
func (w *storeWatch) setLocked(why string, grace time.Duration, err error) {
	now := driver.Now()
	if grace > 0 {
		why = ""
	}
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
		if moved := now.Add(grace).Sub(w.until); !w.inGrace || moved.Abs() > graceSlack {
			w.log(fmt.Sprintf("store: it grants nothing until %s: %v", time.Now().Add(grace).Format(time.RFC3339), err))
		}
		w.inGrace, w.until = true, now.Add(grace)
	case w.inGrace && !now.Before(w.until):
		w.inGrace = false
		w.log("store: it grants again")
	}
	if (w.why != "" || w.inGrace) && !w.isProbing {
		w.isProbing = true
		w.start(w.await)
	}
}

// await asks the store until it is up, and grants.
func (w *storeWatch) await() {
	for !w.isOver() {
		select {
		case <-time.After(probeInterval):
			_, _ = w.check(context.Background()) // it notes the answer
		case <-w.stop:
			return
		}
	}
}

// isOver reports whether await has nothing to wait for, and ends it then.
func (w *storeWatch) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isProbing = w.why != "" || w.inGrace
	return !w.isProbing
}

// check returns whether the store answers: it asks, unless somebody else has within probeInterval.
// Its error is that of the store, or of ctx.
func (w *storeWatch) check(ctx context.Context) (storeState, error) {
	p := w.latest()
	select {
	case <-p.ended:
		return w.state(), p.err
	case <-ctx.Done():
		return storeState{}, context.Cause(ctx)
	}
}

// latest returns the latest question, or a new one if that is too old.
func (w *storeWatch) latest() *probe {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.asking; p == nil || driver.Now().Sub(p.began) >= probeInterval && p.isOver {
		p = &probe{began: driver.Now(), ended: make(chan struct{})}
		w.asking = p
		w.start(func() { w.ask(p) })
	}
	return w.asking
}

// ask asks the store.
func (w *storeWatch) ask(p *probe) {
	ctx, cancel := bounded(context.Background())
	defer cancel()
	why, grace, err := "", time.Duration(0), w.probe(ctx)
	if err != nil {
		why, grace = w.explain(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setLocked(why, grace, err)
	if grace == 0 { // otherwise the store answers
		p.err = err
	}
	p.isOver = true
	close(p.ended)
}

// probe asks whether the store answers, and grants if it may be that it does not: a file on a full
// disk, or one that was deleted, can still be read.
func (s *Service) probe(ctx context.Context) error {
	if s.opts.Grace == nil && !s.store.suspect.Load() {
		_, err := s.driver.Status(ctx, "snib-ready")
		return err
	}
	l, err := s.driver.Acquire(ctx, driver.Request{
		Name: "snib-probe/" + rand.Text(), ID: newGrantID(rand.Text()).String(), NoWait: true, Detached: true,
		TTL: min(wire.DefaultTTL, cmp.Or(s.info.MaxTTL, wire.DefaultTTL)),
	})
	if err == nil {
		s.store.suspect.Store(false)
		_ = l.Release(ctx) // if that fails, it lapses
	}
	return err
}

// state returns what is known of the store.
func (w *storeWatch) state() storeState {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := storeState{Why: w.why}
	if w.inGrace {
		st.Grace = max(0, w.until.Sub(driver.Now()))
	}
	return st
}

// ready answers whether the replica should get requests: it does not shut down, and it reaches the
// store. In a grace period the store renews and releases holds, so the answer is 200.
func (s *Service) ready(w http.ResponseWriter, r *http.Request) error {
	st, err := s.store.check(r.Context())
	switch {
	case r.Context().Err() != nil:
		return context.Cause(r.Context())
	case err != nil:
		return wire.NewProblem(wire.ProblemUnavailable, st.Why, probeInterval)
	case st.Grace > 0:
		return writeJSON(w, http.StatusOK, map[string]any{"status": "grace", "grace_ms": wire.Millis(st.Grace)})
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

// unavailable returns the answer to a request for which the store was unavailable.
func (s *Service) unavailable(err error) *wire.Problem {
	why, grace := s.store.note(err)
	kind := wire.ProblemUnavailable
	if errors.Is(err, driver.ErrFull) {
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

// fault logs an error that may come from the store, and lets that be asked.
func (s *Service) fault(err error) {
	s.faults.printf("fault: %v", err)
	s.store.suspect.Store(true)
	s.store.latest()
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
