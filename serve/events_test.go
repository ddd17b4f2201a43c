package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/internal/livetest"
	"github.com/sniblock/snib/memlock"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/events"
)

// TestEvents listens while a lock is acquired and released. No id is shown, even to an
// administrator.
func TestEvents(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{limits: limits{events: 5 * time.Millisecond}})
	before := r.acquire(wire.Acquire{Name: "before", ID: longID("secret-owner"), Process: wire.Process{Host: "web-1"}})
	l := r.listen()
	l.await(wire.EventReset, "")
	l.await(wire.EventLock, "before")
	l.await(wire.EventReady, "")

	job := r.acquire(wire.Acquire{Name: "job", ID: longID("secret-owner"), Process: wire.Process{Host: "web-2", Label: "deploy"}})
	acquired := l.await(wire.EventAcquired, "job")
	if h := acquired.Holder; h == nil || h.Token != job.Token || h.Host != "web-2" || h.Label != "deploy" {
		t.Errorf("the holder is %+v, want web-2 with token %d", h, job.Token)
	}
	r.release(job)
	released := l.await(wire.EventReleased, "job")
	if len(released.Lock.Holders) > 0 {
		t.Errorf("after the release, the lock is %+v", released.Lock)
	}
	r.release(before)
	l.await(wire.EventReleased, "before")

	empty := r.listen()
	empty.await(wire.EventReset, "")
	if e := empty.next(); e.Type != wire.EventReady {
		t.Errorf("an empty store is shown as %+v", e)
	}
}

// TestEventsDuringOutage checks that a listener who comes while the store is down can use the last
// list that the service has.
func TestEventsDuringOutage(t *testing.T) {
	s := newService(t, memlock.New(), Options{})
	w := httptest.NewRecorder()
	st := &stream{s: s, w: w, p: &Principal{}}
	b := events.Batch{Reset: true, Locks: []driver.Status{{Name: "job"}}, Err: driver.ErrUnavailable}
	if err := st.send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); !regexp.MustCompile(`(?s)"reset".*"lock".*"ready".*"unavailable"`).MatchString(got) {
		t.Errorf("the stream is %s, want a whole list, and then that the store is unavailable", got)
	}
}

// TestEventsEnd checks that a shutdown ends the streams.
func TestEventsEnd(t *testing.T) {
	r := startReplica(t, new(memlock.Store), Options{limits: limits{events: 5 * time.Millisecond}})
	l := r.listen()
	l.await(wire.EventReady, "")
	ctx, cancel := context.WithTimeout(t.Context(), livetest.Patience)
	defer cancel()
	if err := r.service.Drain(ctx); err != nil {
		t.Fatalf("Drain with a client that listens = %v", err)
	}
	for l.lines.Scan() { // until the service has closed the stream
	}
	if err := l.lines.Err(); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}

// A listener is a client that listens to events.
type listener struct {
	t     testing.TB
	lines *bufio.Scanner
}

// listen begins a stream.
func (r *replica) listen() *listener {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), livetest.Patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+wire.PathEvents, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { cancel(); resp.Body.Close() })
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != wire.TypeLines {
		r.t.Fatalf("GET %s = %d, %s", wire.PathEvents, resp.StatusCode, got)
	}
	return &listener{r.t, bufio.NewScanner(resp.Body)}
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
