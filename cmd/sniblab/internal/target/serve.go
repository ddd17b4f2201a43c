package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// ErrDenied is returned by a [Locker] if somebody else has the lock.
const ErrDenied = sentinel("somebody else has the lock")

type sentinel string

func (s sentinel) Error() string { return string(s) }

// A Locker acquires the lock of a target. It waits for at most the given time. After that, its
// error matches [ErrDenied]. It is safe for concurrent use.
type Locker func(ctx context.Context, wait time.Duration) (*Hold, error)

// A Hold is one hold of the lock. Its functions are safe for concurrent use.
type Hold struct {
	Token   uint64          // the fencing token, or 0 if there is none
	Held    func() bool     // whether the target believes that it holds the lock; nil if it does until Lost
	Lost    <-chan struct{} // closed when it learns that it has lost the lock; nil if it can't
	Release func(context.Context) error
}

func (h *Hold) held() bool {
	if h.Held != nil {
		return h.Held()
	}
	select {
	case <-h.Lost:
		return false
	default:
		return true
	}
}

// Serve is a target. It opens its Locker when it is told where, and answers the judge until in
// ends. It returns an error if it can't read what the judge says.
func Serve(in io.Reader, out io.Writer, open func(context.Context, Message) (Locker, error)) error {
	s := &server{out: json.NewEncoder(out), holds: make(map[int64]*Hold)}
	requests := json.NewDecoder(in)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var hello Message
	if err := requests.Decode(&hello); err != nil {
		return fmt.Errorf("the first message of the judge: %w", err)
	}
	locker, err := open(ctx, hello)
	if err != nil {
		s.send(Message{Type: Failed, Error: err.Error()})
		return nil
	}
	s.send(Message{Type: Ready})
	for {
		var m Message
		if err := requests.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.handle(ctx, locker, m)
	}
}

type server struct {
	mu    sync.Mutex
	out   *json.Encoder
	holds map[int64]*Hold
}

// send sends a message. If nobody reads it, the judge is gone, and so will its input be.
func (s *server) send(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(m)
}

func (s *server) hold(id int64) *Hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds[id]
}

// handle answers a message, later if that takes time.
func (s *server) handle(ctx context.Context, locker Locker, m Message) {
	switch m.Type {
	case Acquire:
		go s.acquire(ctx, locker, m)
	case Check:
		h := s.hold(m.ID)
		s.send(Message{Type: Check, ID: m.ID, Held: h != nil && h.held()})
	case Release:
		go s.release(ctx, m.ID)
	default:
		s.send(Message{Type: Failed, Error: fmt.Sprintf("there is no message %q", m.Type)})
	}
}

func (s *server) acquire(ctx context.Context, locker Locker, m Message) {
	h, err := locker(ctx, time.Duration(m.Wait)*time.Millisecond)
	switch {
	case errors.Is(err, ErrDenied):
		s.send(Message{Type: Denied, ID: m.ID})
		return
	case err != nil:
		s.send(Message{Type: Failed, ID: m.ID, Error: err.Error()})
		return
	}
	s.mu.Lock()
	s.holds[m.ID] = h
	s.mu.Unlock()
	s.send(Message{Type: Granted, ID: m.ID, Token: h.Token})
	if h.Lost != nil {
		select {
		case <-h.Lost:
			if s.hold(m.ID) != nil {
				s.send(Message{Type: Lost, ID: m.ID})
			}
		case <-ctx.Done():
		}
	}
}

func (s *server) release(ctx context.Context, id int64) {
	h := s.hold(id)
	if h == nil {
		s.send(Message{Type: Failed, ID: id, Error: "there is no such hold"})
		return
	}
	s.mu.Lock()
	delete(s.holds, id)
	s.mu.Unlock()
	if err := h.Release(ctx); err != nil {
		s.send(Message{Type: Failed, ID: id, Error: err.Error()})
		return
	}
	s.send(Message{Type: Released, ID: id})
}
