package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// An Exchange is a request that was answered.
type Exchange struct {
	Path   string        // of the API; "" for all others, which clients may make up
	Status int           // of the answer
	Took   time.Duration // from the request to the end of the answer, and so with the time that it waited
}

// Stats say what a service is doing.
type Stats struct {
	Waits   int // requests that wait for a lock
	Places  int // acquisitions that have a place in a queue; some clients are between two requests
	Streams int // clients that listen to events

	StoreUp bool          // false: requests fail because the store does not answer
	Grace   time.Duration // how long the store still grants nothing
}

// Stats returns what the service is doing.
func (s *Service) Stats() Stats {
	down, grace := s.store.state()
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Waits: s.polls, Places: s.waits, Streams: int(s.streams.Load()), StoreUp: down == "", Grace: grace}
}

// observe reports a request that was answered.
func (s *Service) observe(r *http.Request, answer *statusRecorder, began time.Time) {
	e := Exchange{Status: answer.status, Took: time.Since(began)}
	if _, ok := routes[r.URL.EscapedPath()]; ok {
		e.Path = r.URL.Path
	}
	s.opts.Observe(e)
}

// A statusRecorder notes the status of an answer.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements [http.ResponseWriter].
func (r *statusRecorder) WriteHeader(status int) {
	if status >= http.StatusOK { // others announce an answer, or go before it
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// getMetrics answers with the metrics of [Options.Metrics].
func (s *Service) getMetrics(w http.ResponseWriter, r *http.Request, p *Principal) error {
	return s.read(r, p, &Action{Op: OpMetrics, List: true}, func(context.Context) error {
		if s.opts.Metrics == nil {
			return errNoPath()
		}
		limitWrite(w)
		s.opts.Metrics.ServeHTTP(w, r)
		return nil
	})
}

// faultInterval is how much time passes between two lines about faults of one kind: a client may
// cause them as often as it likes.
const faultInterval = time.Minute

// A faultLog logs faults of one kind. It is safe for concurrent use.
type faultLog struct {
	log   func(string)
	limit rate.Sometimes
}

// printf logs a fault, unless there was one just now.
func (l *faultLog) printf(format string, args ...any) {
	l.limit.Do(func() { l.log(oneLine(fmt.Sprintf(format, args...))) })
}

// Write implements [io.Writer] for the log of net/http.
func (l *faultLog) Write(text []byte) (int, error) {
	l.printf("%s", text)
	return len(text), nil
}

// oneLine returns a text as one line.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }
