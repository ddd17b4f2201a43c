package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/sniblock/snib/driver"
	"github.com/sniblock/snib/remotelock/wire"
	"github.com/sniblock/snib/serve/internal/events"
)

const (
	// maxStreams is how many clients may listen to events at a time.
	maxStreams = 1000

	// streamTimeout ends a stream, even of a client that is slow on purpose. The next one begins anew.
	streamTimeout = 5 * time.Minute
)

// getEvents answers with a stream of [wire.Event].
func (s *Service) getEvents(w http.ResponseWriter, r *http.Request, p *Principal) error {
	a := Action{Verb: VerbRead, Op: OpEvents, Name: r.URL.Query().Get("prefix"), List: true}
	if err := checkPrefix(p, a.Name); err != nil {
		return err
	}
	return s.begun(r.Context(), p, &a, func(ctx context.Context) error {
		return s.stream(ctx, &stream{s, w, p, a}, r.Method == http.MethodHead)
	})
}

// stream sends events until the client goes or may not read them any more, the service drains, or
// streamTimeout is over.
func (s *Service) stream(ctx context.Context, st *stream, isHead bool) error {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxStreams {
		return wire.NewProblem(wire.ProblemQuota, "too many clients listen to events at this replica", time.Second)
	}
	st.w.Header().Set("Content-Type", wire.TypeLines)
	st.w.Header().Set("X-Accel-Buffering", "no") // proxies of nginx would keep events back
	st.w.WriteHeader(http.StatusOK)
	if isHead {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	l := s.events.Listen()
	defer l.Close()
	for st.flush() == nil {
		batch, err := l.Next(ctx)
		if err != nil {
			break
		}
		err = s.begun(ctx, st.p, &st.action, func(ctx context.Context) error { return st.send(ctx, batch) })
		if err != nil {
			break
		}
	}
	return nil
}

// A stream is what one client gets.
type stream struct {
	s      *Service
	w      http.ResponseWriter
	p      *Principal
	action Action
}

// send sends what is new as lines, up to the first error. A client that does not take one in within
// writeTimeout is cut off.
func (st *stream) send(ctx context.Context, b events.Batch) (err error) {
	write := func(m wire.Event) {
		if err == nil {
			err = context.Cause(ctx) // of a stream that is over
		}
		if err == nil {
			limitWrite(st.w)
			err = json.NewEncoder(st.w).Encode(m)
		}
	}
	last := wire.Event{Type: wire.EventSeen, At: timestamp(b.At)}
	if b.Reset {
		write(wire.Event{Type: wire.EventReset, At: last.At})
		for _, status := range b.Locks {
			if lock, ok := st.lock(status); ok {
				write(wire.Event{Type: wire.EventLock, Lock: lock})
			}
		}
		if err == nil {
			err = st.s.checkRights(ctx, st.p, &st.action)
		}
		write(wire.Event{Type: wire.EventReady, At: last.At})
	}
	for _, e := range b.Events {
		lock, ok := st.lock(e.Lock)
		if !ok {
			continue
		}
		m := wire.Event{Type: e.Kind, At: timestamp(e.At), Lock: lock}
		if e.Kind != wire.EventChanged {
			m.Holder = new(toHolder(e.Hold))
		}
		write(m)
	}
	if b.Err != nil {
		last = wire.Event{Type: wire.EventUnavailable, At: timestamp(time.Now())}
	}
	write(last)
	return err
}

// lock returns a lock as the client may see it, if it asks for it and may see it.
func (st *stream) lock(status driver.Status) (*wire.Lock, bool) {
	name, ok := strings.CutPrefix(status.Name, st.p.Prefix)
	if !ok || !strings.HasPrefix(name, st.action.Name) || !st.s.opts.Access.May(st.p, VerbRead, name) {
		return nil, false
	}
	lock := lockOf(st.p, status)
	return &lock, true
}

// flush sends what was written on its way.
func (st *stream) flush() error {
	limitWrite(st.w)
	defer liftWrite(st.w)
	return http.NewResponseController(st.w).Flush()
}

// timestamp returns a time as messages have it.
func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
