package serve

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/events"
)

// TestEvents listens while a lock is acquired and released. No id is shown, even to an
// administrator.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, memlock.New(), Options{})
		acquire := func(name, process string) (g wire.Granted) {
			w := post(t.Context(), s, wire.PathAcquire, fmt.Sprintf(`{"name":%q,"id":%q,%s}`, name, longID("secret-owner"), process))
			_ = json.Unmarshal(w.Body.Bytes(), &g) // else it has no token
			return g
		}
		release := func(g wire.Granted) {
			post(t.Context(), s, wire.PathRelease, fmt.Sprintf(`{"name":%q,"id":%q}`, g.Name, g.ID))
		}
		before := acquire("before", `"host":"web-1"`)
		l := listen(t, s)
		l.await(wire.EventReset, "")
		l.await(wire.EventLock, "before")
		l.await(wire.EventReady, "")

		job := acquire("job", `"host":"web-2","label":"deploy"`)
		if h := l.await(wire.EventAcquired, "job").Holder; h == nil || h.Token != job.Token || h.Host != "web-2" || h.Label != "deploy" {
			t.Errorf("the holder is %+v, want web-2 with token %d", h, job.Token)
		}
		release(job)
		if e := l.await(wire.EventReleased, "job"); len(e.Lock.Holders) > 0 {
			t.Errorf("after the release, the lock is %+v", e.Lock)
		}
		release(before)
		l.await(wire.EventReleased, "before")

		empty := listen(t, s)
		empty.await(wire.EventReset, "")
		if e := empty.next(); e.Type != wire.EventReady {
			t.Errorf("an empty store is shown as %+v", e)
		}
	})
}

// TestEventsDuringOutage checks that a listener who comes while the store is down can use the last
// list that the service has, and that a list that lost rights while it was sent is not said to be
// whole.
func TestEventsDuringOutage(t *testing.T) {
	access := &testAccess{}
	s := newService(t, memlock.New(), Options{})
	s.opts.Access = access
	w := httptest.NewRecorder()
	st := &stream{s: s, w: w, p: &Principal{}}
	b := events.Batch{Reset: true, Locks: []driver.Status{{Name: "job"}}, Err: driver.ErrUnavailable}
	if err := st.send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); !regexp.MustCompile(`(?s)"reset".*"lock".*"ready".*"unavailable"`).MatchString(got) {
		t.Errorf("the stream is %s, want a whole list, and then that the store is unavailable", got)
	}
	access.begin = func(Action) (func(Outcome), error) { return nil, wire.NewProblem(wire.ProblemForbidden, "", 0) }
	w.Body.Reset()
	if err := st.send(t.Context(), b); err == nil || strings.Contains(w.Body.String(), "ready") {
		t.Errorf("without the right to read any more, send = %v, and the stream is %s", err, w.Body)
	}
}

// TestEventsEnd checks that a shutdown ends the streams at once.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, memlock.New(), Options{})
		l := listen(t, s)
		l.await(wire.EventReady, "")
		go func() {
			for l.lines.Scan() { // until the service has closed the stream
			}
		}()
		began := time.Now()
		if err := s.Drain(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("Drain with a client that listens = %v after %v, want nil at once", err, time.Since(began))
		}
	})
}

// A listener is a client that listens to events.
type listener struct {
	t     testing.TB
	lines *bufio.Scanner
}

// A pipeWriter is an answer that its client reads from a pipe.
type pipeWriter struct{ *io.PipeWriter }

func (pipeWriter) Header() http.Header { return http.Header{} }
func (pipeWriter) WriteHeader(int)     {}
func (pipeWriter) Flush()              {}

// listen begins a stream in the bubble of a test: a client of a network may be so slow that it gets
// another list instead of events.
func listen(t *testing.T, s *Service) *listener {
	out, in := io.Pipe()
	t.Cleanup(func() { out.Close() })
	go func() {
		defer in.Close()
		s.ServeHTTP(pipeWriter{in}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, wire.PathEvents, nil))
	}()
	return &listener{t, bufio.NewScanner(out)}
}

// next returns the next event that says something new.
func (l *listener) next() wire.Event {
	l.t.Helper()
	for l.lines.Scan() {
		text := l.lines.Text()
		if strings.Contains(text, "secret-owner") {
			l.t.Errorf("an event shows an id: %s", text)
		}
		var e wire.Event
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			l.t.Fatal(err)
		}
		if e.Type != wire.EventSeen {
			return e
		}
	}
	l.t.Fatalf("the stream has ended: %v", l.lines.Err())
	return wire.Event{}
}

// await returns the next event of a type, of a lock if it has a name.
func (l *listener) await(kind, name string) wire.Event {
	l.t.Helper()
	for {
		e := l.next()
		if e.Type == kind && (name == "" || e.Lock != nil && e.Lock.Name == name) {
			return e
		}
	}
}
